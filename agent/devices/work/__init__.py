"""The managers of devices and of claims, and the methods of the podresources API."""
