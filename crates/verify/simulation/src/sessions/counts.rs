//! Counts of the events of a session run.

stentor_fabric_sim::counts! {
    /// Number of occurrences of each event in a run.
    SessionCounts {
        /// Sessions that were opened.
        sessions_opened,
        /// Openings and widenings that a table refused for lack of room.
        tables_full,
        /// Sessions that expired at a member.
        sessions_run_out,
        /// Sessions that a process ended.
        sessions_ended,
        /// Sessions that a later process took up.
        sessions_taken_up,
        /// Sessions that were taken up with commands of unknown fate.
        taken_up_with_commands_under_way,
        /// Refused attempts to take up a session.
        takings_up_refused,
        /// Sessions that no group knew when a process tried to take them up.
        sessions_gone,
        /// Sessions that were widened.
        sessions_widened,
        /// Renewals of sessions.
        renewals,
        /// Groups that no longer knew a session when it was renewed.
        groups_dropped,
        /// Commands that were begun.
        commands,
        /// Commands whose callers received all replies.
        applied,
        /// Applied commands with a reply that was too long.
        replies_too_long,
        /// Commands that were begun and not sent.
        not_sent,
        /// Commands that were sent and are certainly not applied.
        not_applied,
        /// Commands that were given up.
        given_up,
        /// Commands whose fate remains unknown.
        unresolvable,
        /// Questions about commands that are delivered and not answered.
        questions,
        /// Questions about commands that were given up, or that an earlier process had sent.
        resolutions,
        /// Additional messages that carried a command.
        copies,
        /// Copies of a command that a table answered with the stored reply.
        duplicates_from_cache,
        /// Queries that a member answered.
        queries_answered,
        /// Questions that a table answered with the stored reply.
        questions_from_cache,
        /// Replies of a leader that crashed before the caller received them.
        replies_lost_with_leaders,
        /// Records that were sent to clients again.
        records_said_again,
        /// Rounds of a member after which records waited for room in a client's ring.
        reply_rings_full,
        /// States with open sessions that a member installed.
        states_with_sessions,
        /// Reads outside the order that clients sent.
        reads,
        /// Reads outside the order that were answered.
        reads_answered,
        /// Reads outside the order that were given up.
        reads_given_up,
        /// Reads that a leader answered.
        reads_led,
        /// Reads at a leader that waited for a delivery after the leader had confirmed its leadership.
        reads_led_late,
        /// Reads after a position that a member answered once it had applied a command.
        reads_after,
        /// Reads after a position that waited for the command.
        reads_after_late,
        /// Reads that a member answered at once.
        reads_local,
        /// Reads that were redirected to another member.
        reads_elsewhere,
        /// Time entries that were ordered because a read requested a later time than the group had reached.
        entries_for_reads,
        /// Notifications that state machines sent to open sessions.
        notifications,
        /// Notifications that clients received.
        notifications_heard,
        /// Notifications that were reported to clients as lost.
        notifications_missed,
        /// Number of times that an otherwise idle client waited for notifications.
        notifications_awaited,
        /// Positions at which timers fired, counted once for each group.
        timers_fired,
        /// Version entries that groups delivered, counted once for each group.
        version_entries,
        /// Applied commands to more than one group.
        applied_in_several_groups,
    }
}

impl SessionCounts {
    /// Names of the rare events that must occur in a simulation run of enough seeds.
    pub(super) const CLAIMS: [&'static str; 27] = [
        "tables_full",
        "sessions_run_out",
        "sessions_ended",
        "taken_up_with_commands_under_way",
        "takings_up_refused",
        "sessions_gone",
        "sessions_widened",
        "groups_dropped",
        "not_applied",
        "given_up",
        "questions_from_cache",
        "duplicates_from_cache",
        "queries_answered",
        "replies_lost_with_leaders",
        "records_said_again",
        "reply_rings_full",
        "states_with_sessions",
        "reads_led_late",
        "reads_after_late",
        "reads_local",
        "reads_elsewhere",
        "entries_for_reads",
        "notifications_heard",
        "notifications_missed",
        "notifications_awaited",
        "timers_fired",
        "version_entries",
    ];
}
