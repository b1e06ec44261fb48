"""`nodewright completion`: scripts for shells. They ask nodewright itself at every TAB, so they never get old."""

from __future__ import annotations

# The word that the user typed is started again, so that `./nodewright` and `nodewright` both work. What has no
# candidates is left to the shell, which completes names of files.
_BASH = r"""# nodewright's completion for bash: source <(nodewright completion bash)
_nodewright_completion() {
  local line before=("${COMP_WORDS[@]:1:COMP_CWORD-1}") current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  while IFS= read -r line; do
    [[ $line == "$current"* ]] && COMPREPLY+=("$line")
  done < <(env _NODEWRIGHT_COMPLETE=complete_bash COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" \
    "${COMP_WORDS[0]}" 2>/dev/null)
}
complete -o default -F _nodewright_completion nodewright ./nodewright"""

_ZSH = r"""#compdef nodewright ./nodewright
# nodewright's completion for zsh: nodewright completion zsh > "${fpath[1]}/_nodewright"
_nodewright() {
  local -a found
  found=("${(@f)$(env _NODEWRIGHT_COMPLETE=complete_bash COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) \
    "${words[1]}" 2>/dev/null)}")
  if [[ -n ${found[1]} ]]; then
    compadd -a found
  else
    _files
  fi
}
if [[ ${funcstack[1]} == _nodewright ]]; then
  _nodewright "$@"
else
  compdef _nodewright nodewright ./nodewright
fi"""

_FISH = r"""# nodewright's completion for fish: nodewright completion fish > ~/.config/fish/completions/nodewright.fish
function __nodewright_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    env _NODEWRIGHT_COMPLETE=complete_bash COMP_WORDS="$words $current" COMP_CWORD=(count $words) $words[1] 2>/dev/null
end
complete --command nodewright --arguments '(__nodewright_complete)'"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str) -> str:
    """The script that makes the shell complete our command lines."""
    return _SCRIPTS[shell]
