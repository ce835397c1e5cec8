# Sourced by scripts in the directories beside this file. Defines a function that checks whether a node has delivered
# all lines of a cast.

# Messages of the session also have places in the order, so the last line is recognised by its text. If a node has
# restored another member's state, it may have printed the number of deliveries in that state instead of the last line.
has_all() { # OUTPUT LINES
    last=$(tail -n 1 "$1")
    case $last in
    *"\"payload\":\"line $2\""*) return 0 ;;
    *'"restored"'*) [ "$(echo "$last" | sed 's/.*"n":\([0-9]*\).*/\1/')" -gt "$2" ] ;;
    *) return 1 ;;
    esac
}
