#compdef millhead
# millhead.zsh - completion of the command's verbs and options for zsh
# SPDX-License-Identifier: Apache-2.0
#
# Verbs, subjects, causes and options are read from --help, so they are always those of the millhead
# that is installed; only the kinds of --shuffle stand here.

# _millhead_options TEXT: the options that a help text describes, at the beginning of its lines.
_millhead_options() {
    print -r -- "$1" | sed -nE 's/^  (-[^ ]+( [A-Z]+)?(, -[^ ]+( [A-Z]+)?)*).*/\1/p' |
        grep -oE -- '-[a-zA-Z-]+'
}

# _millhead_names TEXT TITLE: the first words of the lines under a title.
_millhead_names() {
    print -r -- "$1" | sed -nE "/^$2:/,/^\$/s/^  ([a-z-]+) .*/\1/p"
}

_millhead() {
    local text command=$words[1] verb=${words[2]-} subject=${words[3]-}
    # A command of the user's: files
    if (( ${words[(i)--]} < CURRENT )); then
        _files
        return
    fi
    if [[ $words[CURRENT-1] == --shuffle ]]; then
        compadd -- blocks torch
        return
    fi
    if (( CURRENT == 2 )) || [[ $CURRENT == 3 && $verb == help && $PREFIX != -* ]]; then
        text=$($command --help 2>/dev/null)
        compadd -- ${(f)"$(_millhead_names "$text" verbs)"} --help --version
        return
    fi
    text=$($command $verb --help 2>/dev/null) || return 1
    if [[ $verb == explain && $PREFIX != -* ]]; then
        compadd -- ${(f)"$(_millhead_names "$text" causes)"}
        return
    fi
    if [[ $text == *$'\nsubjects:'* ]]; then
        if (( CURRENT == 3 )) && [[ $PREFIX != -* ]]; then
            compadd -- ${(f)"$(_millhead_names "$text" subjects)"}
            return
        fi
        [[ $subject == [a-z]* ]] && text=$($command $verb $subject --help 2>/dev/null)
    fi
    if [[ $PREFIX == -* ]]; then
        compadd -- ${(f)"$(_millhead_options "$text")"}
    else
        _files
    fi
}

_millhead "$@"
