//! What a run visited.

stentor_fabric_sim::counts! {
    /// Counts how often each event happened in a run.
    SessionCounts {
        /// Sessions that were opened.
        sessions_opened,
        /// Openings and widenings for which a table had no room.
        tables_full,
        /// Sessions that ran out at a member.
        sessions_run_out,
        /// Sessions that a process ended.
        sessions_ended,
        /// Sessions that a later process took up.
        sessions_taken_up,
        /// Of those, with commands whose fate was not known.
        taken_up_with_commands_under_way,
        /// Attempts to take a session up that were refused.
        takings_up_refused,
        /// Sessions that no group knew when a process wanted to take them up.
        sessions_gone,
        /// Sessions that were widened.
        sessions_widened,
        /// Renewals.
        renewals,
        /// Groups that did not know a session any more when it was renewed.
        groups_dropped,
        /// Commands that were begun.
        commands,
        /// Commands whose callers got every reply.
        applied,
        /// Of those, with a reply that was too long.
        replies_too_long,
        /// Commands that were begun and not sent.
        not_sent,
        /// Commands that were sent and are certainly not applied.
        not_applied,
        /// Commands that were given up.
        given_up,
        /// Commands whose fate stays unknown.
        unresolvable,
        /// Questions what became of a command that is delivered and not answered.
        questions,
        /// Questions about commands that were given up, or that an earlier process had sent.
        resolutions,
        /// Further messages that carried a command.
        copies,
        /// Copies of a command that a table answered with the reply that it kept.
        duplicates_from_cache,
        /// Queries that a member answered.
        queries_answered,
        /// Questions that a table answered with the reply that it kept.
        questions_from_cache,
        /// Replies of a leader that crashed before the caller knew them.
        replies_lost_with_leaders,
        /// Records that were said again to clients.
        records_said_again,
        /// Rounds of a member after which records waited for room in a client's ring.
        reply_rings_full,
        /// States with open sessions that a member took over.
        states_with_sessions,
        /// Reads outside the order that clients sent.
        reads,
        /// Those that were answered.
        reads_answered,
        /// Those that were given up.
        reads_given_up,
        /// Reads that a leader answered.
        reads_led,
        /// Those of them that waited for a delivery when the leader had seen that it led.
        reads_led_late,
        /// Reads that a member answered that has applied a command.
        reads_after,
        /// Those of them that waited for it.
        reads_after_late,
        /// Reads that a member answered at once.
        reads_local,
        /// Reads that another member was to answer.
        reads_elsewhere,
        /// Time entries that were ordered because a read comes after a later time than the group had reached.
        entries_for_reads,
        /// Notifications that machines sent to open sessions.
        notifications,
        /// Those that clients got.
        notifications_heard,
        /// Those of which clients were told that they were lost.
        notifications_missed,
        /// Times that a client with nothing else to do waited to hear of notifications.
        notifications_awaited,
        /// Commands to more than one group that were applied.
        applied_in_several_groups,
    }
}

impl SessionCounts {
    /// The rare states that a simulation run must reach.
    pub(super) const CLAIMS: [&'static str; 25] = [
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
    ];
}
