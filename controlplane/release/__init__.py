"""`nodewright release`: what the project publishes, the same bytes from the same commit.

Wheels of the code, of the programs and images of a cluster, and of the Python packages that they need; the Debian
package; a list of all parts (SBOM) with their licences; checksums. Open work.py first.
"""
