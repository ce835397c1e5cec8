# Sourced by the scripts in this directory and below. Tells whether a node has delivered all lines of a cast.

# Messages of the session also have places in the order, so the last line is recognised by its text. A node that has
# last restored another member's state has printed that state instead of lines. Its number then shows how many
# deliveries it includes.
has_all() { # OUTPUT LINES
    last=$(tail -n 1 "$1")
    case $last in
    *"\"payload\":\"line $2\""*) return 0 ;;
    *'"restored"'*) [ "$(echo "$last" | sed 's/.*"n":\([0-9]*\).*/\1/')" -gt "$2" ] ;;
    *) return 1 ;;
    esac
}
