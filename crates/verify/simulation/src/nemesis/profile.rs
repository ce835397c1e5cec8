//! The fault profiles of simulation runs.

/// A fault profile: a mix of faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// No faults other than those of the network.
    #[default]
    Calm,
    /// Members crash, restart without memory, and are suspected. Leaders are slow, are changed on request, or change
    /// continuously.
    Failover,
    /// One-way and two-way partitions, including those of leaders that continue to write.
    Partition,
    /// Clients crash after any of their writes. Other processes take over their client ids, or none do. Some clients
    /// that are up are cut off from a group.
    Clients,
    /// All faults of the profiles above.
    All,
    /// Rings of a few records, and large messages. Links from clients to members are cut repeatedly, mostly for less
    /// time than a queue pair retries. Bodies then arrive from another member before the client's own write does.
    Rings,
    /// Members crash and restart while clients fill their windows. The state of the leader then arrives later than the
    /// entries of its stream.
    Rejoins,
    /// The faults of `Rejoins`, hand-overs and stalls, with applications whose states are larger than a control ring.
    States,
    /// Members and clients are stopped for so long that windows and rings fill up, several of them at a time, but only
    /// a minority of each group.
    ///
    /// A run fails if a client has no room for longer than 0.9 ms of virtual time, or if a group owes a message and
    /// delivers nothing for as long while there are faults. Time in which a client is stopped does not count: it may
    /// have stopped with a partially written message, because its fan-out set or a connection broke just before. The
    /// others then wait until it continues or, if members have a client timeout, until they declare it failed. Runs of
    /// this profile have no client timeout.
    Stops,
    /// All faults, on hosts whose clocks differ: the clocks have skew and drift, and one of them may be stepped, or off
    /// by up to a year.
    Clocks,
    /// All members of a group lose their memory, at once or one after the other, or all except one that is silent in
    /// the meantime. The same may happen to members of several groups, or to all processes. An operator resets groups
    /// that wait because some process remembers them. Clients crash, links are cut, and members stall.
    Forgets,
}

/// The weights with which the kinds of faults are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Weights {
    pub(super) crash_leader: u64,
    pub(super) crash_anybody: u64,
    pub(super) crash_at_post: u64,
    pub(super) client_crash: u64,
    pub(super) deafen: u64,
    pub(super) mute: u64,
    pub(super) cut_link: u64,
    pub(super) isolate: u64,
    pub(super) stall_leader: u64,
    pub(super) stall_anybody: u64,
    pub(super) suspect: u64,
    pub(super) flap: u64,
    pub(super) hand_over: u64,
}

named!(Profile {
    Calm = "calm",
    Failover = "failover",
    Partition = "partition",
    Clients = "clients",
    All = "all",
    Rings = "rings",
    Rejoins = "rejoins",
    States = "states",
    Stops = "stops",
    Clocks = "clocks",
    Forgets = "forgets"
});

impl Profile {
    pub(super) fn weights(self) -> Weights {
        match self {
            Profile::Calm => Weights::default(),
            Profile::Failover => Weights {
                crash_leader: 4,
                crash_anybody: 3,
                crash_at_post: 6,
                stall_leader: 3,
                stall_anybody: 1,
                suspect: 4,
                flap: 2,
                hand_over: 2,
                ..Weights::default()
            },
            Profile::Partition => Weights {
                deafen: 4,
                mute: 4,
                cut_link: 4,
                isolate: 3,
                stall_anybody: 1,
                suspect: 2,
                flap: 1,
                ..Weights::default()
            },
            Profile::Clients => {
                Weights { client_crash: 8, stall_leader: 1, stall_anybody: 1, suspect: 1, ..Weights::default() }
            }
            Profile::Rings => Weights { cut_link: 2, stall_anybody: 1, ..Weights::default() },
            Profile::All | Profile::Clocks => Weights {
                client_crash: 8,
                stall_anybody: 2,
                suspect: 5,
                deafen: 4,
                mute: 4,
                cut_link: 4,
                isolate: 3,
                ..Profile::Failover.weights()
            },
            Profile::Forgets => Weights { client_crash: 2, cut_link: 1, stall_anybody: 1, ..Weights::default() },
            Profile::Stops => Weights { hand_over: 1, ..Weights::default() },
            Profile::Rejoins => Weights {
                crash_anybody: 6,
                crash_at_post: 4,
                client_crash: 3,
                cut_link: 3,
                isolate: 3,
                suspect: 2,
                ..Weights::default()
            },
            Profile::States => Weights { hand_over: 2, stall_anybody: 3, ..Profile::Rejoins.weights() },
        }
    }

    /// Returns the names of the [`NemesisCounts`](super::NemesisCounts) that must not be 0 after a simulation run of
    /// this profile.
    #[must_use]
    pub fn claims(self) -> Vec<&'static str> {
        const FAILOVER: [&str; 12] = [
            "leader_crashes",
            "follower_crashes",
            "member_crashes_at_a_post",
            "double_crashes",
            "crashes_during_recovery",
            "member_restarts",
            "rejoins_under_load",
            "slow_leaders",
            "false_suspicions",
            "dead_leaders_named",
            "flaps",
            "hand_overs",
        ];
        const PARTITION: [&str; 4] = ["deaf_leaders", "mute_leaders", "cut_links", "isolations"];
        match self {
            Profile::Calm => Vec::new(),
            Profile::Failover => FAILOVER.to_vec(),
            Profile::Partition => [&PARTITION[..], &["false_suspicions", "flaps"]].concat(),
            Profile::Clients => {
                vec![
                    "client_crashes",
                    "clients_gone",
                    "clients_cut_off",
                    "false_suspicions",
                    "slow_leaders",
                    "silent_groups",
                    "clients_begun_beside_a_silent_group",
                ]
            }
            Profile::Rings => vec!["late_links", "cut_links", "stalled_followers"],
            Profile::All | Profile::Clocks => {
                [&FAILOVER[..], &PARTITION, &["client_crashes", "clients_gone", "clients_cut_off", "stalled_followers"]]
                    .concat()
            }
            Profile::Forgets => {
                vec![
                    "memories_lost",
                    "clients_told_of_resets",
                    "survivors_silent",
                    "isolations",
                    "client_crashes",
                    "cut_links",
                ]
            }
            Profile::Stops => {
                vec!["leaders_stopped", "followers_stopped", "clients_stopped", "several_stopped", "hand_overs"]
            }
            Profile::Rejoins | Profile::States => {
                vec![
                    "follower_crashes",
                    "member_restarts",
                    "rejoins_under_load",
                    "cut_links",
                    "isolations",
                    "clients_cut_off",
                ]
            }
        }
    }
}
