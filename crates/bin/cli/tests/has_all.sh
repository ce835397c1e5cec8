# Sourced by scripts beside and below: whether a node has delivered all lines of a cast.

# Messages of the session have places in the order as well, so the last line is the one with its text. A node that took over another one's
# state last has printed that in place of lines: then the state goes as far as them.
has_all() { # OUTPUT LINES
    last=$(tail -n 1 "$1")
    case $last in
    *"\"payload\":\"line $2\""*) return 0 ;;
    *'"restored"'*) [ "$(echo "$last" | sed 's/.*"n":\([0-9]*\).*/\1/')" -gt "$2" ] ;;
    *) return 1 ;;
    esac
}
