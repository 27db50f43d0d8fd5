# millhead.fish - completion of the command's verbs and options for fish
# SPDX-License-Identifier: Apache-2.0
#
# Verbs, subjects, causes and options are read from --help, so they are always those of the millhead
# that is installed; only the kinds of --shuffle stand here.

# The names under a title of a help text, each with what is said about it.
function __millhead_names --argument-names title
    string match --entire --regex '.' -- $argv[2..] |
        awk -v title="$title:" '$0 == title { on = 1; next } /^[^ ]/ { on = 0 }
            on && /^  [a-z]/ { name = $1; sub(/^  [a-z-]+ */, ""); print name "\t" $0 }'
end

# The options that a help text describes, at the beginning of its lines.
function __millhead_options
    printf '%s\n' $argv | sed -nE 's/^  (-[^ ]+( [A-Z]+)?(, -[^ ]+( [A-Z]+)?)*).*/\1/p' |
        grep -oE -- '-[a-zA-Z-]+'
end

function __millhead_complete
    set -l words (commandline -opc)
    set -l command $words[1]
    set -l word (commandline -ct)
    contains -- -- $words; and return
    if test "$words[-1]" = --shuffle
        printf '%s\n' blocks torch
        return
    end
    if test (count $words) -eq 2 -a "$words[2]" = help
        __millhead_names verbs ($command --help 2>/dev/null)
    end
    if test (count $words) -eq 1
        __millhead_names verbs ($command --help 2>/dev/null)
        printf '%s\n' --help --version
        return
    end
    set -l help ($command $words[2] --help 2>/dev/null); or return
    test "$words[2]" = explain; and __millhead_names causes $help
    set -l subjects (__millhead_names subjects $help)
    if test -n "$subjects" -a (count $words) -eq 2
        printf '%s\n' $subjects
    else if test -n "$subjects"
        set help ($command $words[2] $words[3] --help 2>/dev/null); or return
    end
    string match -q -- '-*' $word; and __millhead_options $help
end

complete -c millhead -f -n 'test (count (commandline -opc)) -eq 1' -a '(__millhead_complete)'
complete -c millhead -n 'test (count (commandline -opc)) -gt 1' -a '(__millhead_complete)'
