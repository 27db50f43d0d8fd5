# millhead.bash - completion of the command's verbs and options for bash
# SPDX-License-Identifier: Apache-2.0
#
# Verbs, subjects, causes and options are read from --help, so they are always those of the millhead
# that is installed; only the kinds of --shuffle stand here.

# _millhead_options TEXT: the options that a help text describes, at the beginning of its lines.
_millhead_options() {
    sed -nE 's/^  (-[^ ]+( [A-Z]+)?(, -[^ ]+( [A-Z]+)?)*).*/\1/p' <<<"$1" | grep -oE -- '-[a-zA-Z-]+'
}

# _millhead_names TEXT TITLE: the first words of the lines under a title.
_millhead_names() {
    sed -nE "/^$2:/,/^\$/s/^  ([a-z-]+) .*/\1/p" <<<"$1"
}

_millhead() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]-} subject=${COMP_WORDS[2]-} at help
    COMPREPLY=()
    for ((at = 2; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -- ]] && return # a command of the user's: bash completes files
    done
    if [[ ${COMP_WORDS[COMP_CWORD - 1]} == --shuffle ]]; then
        mapfile -t COMPREPLY < <(compgen -W "blocks torch" -- "$word")
        return
    fi
    if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $verb == help && $word != -* ]]; }; then
        help=$("$1" --help 2>/dev/null)
        mapfile -t COMPREPLY < <(compgen -W "$(_millhead_names "$help" verbs) --help --version" -- "$word")
        return
    fi
    help=$("$1" "$verb" --help 2>/dev/null) || return 0
    if [[ $verb == explain && $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_millhead_names "$help" causes)" -- "$word")
        return
    fi
    if [[ $help == *$'\nsubjects:'* ]]; then
        if ((COMP_CWORD == 2)) && [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$(_millhead_names "$help" subjects)" -- "$word")
            return
        fi
        [[ $subject == [a-z]* ]] && help=$("$1" "$verb" "$subject" --help 2>/dev/null)
    fi
    [[ $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W "$(_millhead_options "$help")" -- "$word")
}

complete -o default -F _millhead millhead
