//! The state machine of one member of a group.
//!
//! # Calls
//! Inputs are method calls; output is written to an [`Effects`]. One call is one step of one thread.
//! - `on_*`: an input from a client ([`on_message`](Replica::on_message)), from another member, from the shell's
//!   connections, or from time. A refused input ([`Rejected`]) changes nothing.
//! - Decisions of the shell: [`campaign`](Replica::campaign), [`reset`](Replica::reset),
//!   [`set_physical`](Replica::set_physical), [`order_time`](Replica::order_time), [`open`](Replica::open),
//!   [`set_version_goal`](Replica::set_version_goal) and [`end_client`](Replica::end_client).
//!
//! After an input that may allow an assignment or a delivery, a leader assigns the messages that it may assign now, and
//! the member delivers those that are due. Before [`on_stream`](Replica::on_stream) the shell calls
//! [`stream_waits`](Replica::stream_waits). Before it passes on a message that [fences](PeerMessage::fences) a larger
//! ballot than is [promised](Replica::promised), it fences the member's stream regions.
//!
//! # Parts
//! | part | owns |
//! |---|---|
//! | `Agreement` | ballots, clock, stream position, `Messages` (a `Window` of `Slot`s per client, `Order`), `Sharing` |
//! | `Membership` | whether the member has its memory, the lives of all members, the joining processes |
//! | `Leadership` | the current `Campaign`, leadership or `Install`; the `StaleLeaderProbe` |
//! | `Starvation` | evidence that the member's stream lacks entries |
//!
//! Handlers borrow parts for one step: `Leader` (steps 2 and 3 of the crate's header), `Follower` (step 4), `NoOps`,
//! `Successions`, `Words`, `Recovery` and `Repair`.
//!
//! # States of a message at a member
//! *placeholder* (timestamps or acknowledgements came before the body) → *held* (its body is stored) → *ordered* (this
//! group's timestamp is processed from the stream, or assigned here) → *vector* (stream processed through the whole
//! vector) → *delivered*. It is *decided* as soon as it is held and a majority of every destination group acknowledged
//! one vector. A *no-op* is never delivered. Delivered messages are retained until their slots are used again.

mod agreement;
mod ballots;
mod campaign;
mod clock;
mod closing;
mod config;
mod effects;
mod follower;
mod founding;
mod heirs;
mod histories;
mod identity;
mod install;
mod leader;
mod leadership;
mod lives;
mod membership;
mod memories;
mod messages;
mod no_op;
mod order;
mod places;
mod probe;
mod reads;
mod recovery;
mod rejected;
mod repair;
mod reset;
mod settling;
mod sharing;
mod slot;
mod starvation;
mod succession;
mod survivors;
mod time_entry;
mod unsettled;
mod version_entry;
mod votes;
mod window;
mod words;

use std::hash::{Hash, Hasher};

use stentor_fabric::ProcessId;

pub use self::ballots::Contradiction;
pub use self::config::{ReplicaConfig, TotalLoss, Variant};
pub use self::effects::{Delivery, Effects};
pub use self::memories::Hindrance;
pub use self::reads::{ReadBarrier, ReadProgress};
pub use self::rejected::Rejected;
pub(crate) use self::time_entry::is_possible;
pub use self::unsettled::Settling;
use crate::mutant::mutant;
use crate::peer_message::{Joiner, MessageRef, PeerMessage};
use crate::physical_clock::END_OF_TIME;
use crate::{Ack, Ballot, ClientId, GroupId, Header, MessageId, RemoteTimestamp, StreamItem};
use agreement::Agreement;
use ballots::Known;
use campaign::Demand;
use follower::Follower;
use identity::Identity;
use install::Install;
use leader::Leader;
use leadership::{Leadership, Stage};
use membership::Membership;
use no_op::NoOps;
use recovery::Recovery;
use repair::{BODIES, Repair};
use starvation::Starvation;
use succession::Successions;
use window::Window;

/// Counts of the rare ways in which a member caught up with its leader. A simulation checks them for coverage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CatchUps {
    /// States of the installed ballot that added no stream entries, but deliveries that this member lacked.
    pub overtaken: u64,
    /// Requests for the leader's state that were sent because the stream lacked entries.
    pub starved: u64,
}

/// Counts of outcomes of messages that were sent to an ended history of a group. A simulation checks them for coverage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settlements {
    /// Messages that were decided here without a group whose history has ended.
    pub decided: u64,
    /// Messages that this leader made no-ops, because another group's new history does not contain them.
    pub lost: u64,
    /// Timestamps and acknowledgements of another group that belong to an incarnation below the known one.
    pub refused: u64,
}

/// One member of a group.
#[derive(Clone, Debug)]
pub struct Replica {
    agreement: Agreement,
    membership: Membership,
    leadership: Leadership,
    starvation: Starvation,
}

/// Creation.
impl Replica {
    /// Creates a member at the start of the cluster: every group is in the first ballot of its [first
    /// incarnation](crate::Incarnation::FIRST).
    ///
    /// # Panics
    /// Panics if `config.me` is not a member of a group, or the window is not a power of two.
    #[must_use]
    pub fn new(config: ReplicaConfig) -> Self {
        let mut replica = Replica::joining(config, 0);
        recovery::begin_life(&mut replica.agreement, &mut replica.membership, &mut replica.leadership);
        replica
    }

    /// Creates a process without memory of its group, which asks its group to admit it. If all members are in this
    /// state, and no process that they reach remembers the group, [`TotalLoss`] decides whether they found it.
    ///
    /// # Panics
    /// Panics in the same cases as [`new`](Replica::new).
    #[must_use]
    pub fn joining(config: ReplicaConfig, life: u64) -> Self {
        let agreement = Agreement::new(Identity::new(config));
        let membership = Membership::joining(&agreement.id, life);
        Replica { agreement, membership, leadership: Leadership::new(), starvation: Starvation::default() }
    }

    /// Returns the bytes of a slot of a client's window: the message there and its entry in the order.
    pub(crate) fn slot_bytes() -> u64 {
        (size_of::<slot::Slot>() + size_of::<order::Undelivered>()) as u64
    }

    /// Returns the additional heap bytes of a slot once it has held a message to this many groups.
    pub(crate) fn slot_heap_bytes(groups: usize) -> u64 {
        slot::Slot::heap_bytes(groups)
    }
}

/// Queries.
impl Replica {
    /// Returns this member's group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.agreement.id.group
    }

    /// Returns the group's ballot: the last one whose state is installed here.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.agreement.ballots.installed
    }

    /// Returns the largest ballot that this member has promised.
    #[must_use]
    pub fn promised(&self) -> Ballot {
        self.agreement.ballots.promised
    }

    /// Returns the largest known ballot of a group, or the default ballot if there is no such group.
    #[must_use]
    pub fn known(&self, group: GroupId) -> Ballot {
        self.agreement.ballots.known(group)
    }

    /// Returns whether this process has no memory of its group yet.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.membership.is_joining()
    }

    /// Returns whether this process has been replaced: its group knows a later process of this member, or continues
    /// [without its history](Replica::ended_by). A replaced process sends nothing.
    #[inline]
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.membership.is_superseded()
    }

    /// Returns whether this member leads its group, and a majority has its state.
    #[inline]
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leadership.leads()
    }

    /// Returns whether this member collects promises or installs its state at the other members.
    #[must_use]
    pub fn is_candidate(&self) -> bool {
        matches!(self.leadership.stage, Stage::Campaigning(_) | Stage::Preparing)
    }

    /// Returns the ballot in which this member's reports of held messages count, together with other members' reports
    /// in the same ballot: the installed one. While a larger ballot is promised, none counts, because the member may
    /// lose its memory and then be admitted by a ballot below the promised one.
    #[must_use]
    pub fn counts_in(&self) -> Option<Ballot> {
        let ballots = &self.agreement.ballots;
        let member = !self.is_joining() && !self.is_superseded();
        (ballots.is_current() && member).then_some(ballots.installed)
    }

    /// Returns the messages that have this group's timestamp and are not delivered here.
    pub fn undelivered(&self) -> impl Iterator<Item = MessageId> + '_ {
        let messages = &self.agreement.messages;
        messages.clients().map(|client| (client, messages.window(client))).flat_map(|(client, window)| {
            let here = window.open().filter(|slot| window.is_here(*slot)).map(|slot| window.slot(slot));
            let open = here.filter(|message| message.ordered && !message.delivered && !message.no_op);
            open.map(move |message| MessageId { client, sequence: message.sequence })
        })
    }

    /// Returns the number of messages delivered so far, including those that came with another member's state.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.agreement.messages.delivered
    }

    /// Returns whether a delivery was due for which the application had no [room](Effects::has_room), at the last
    /// attempt.
    #[inline]
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.agreement.messages.held_back
    }

    /// Continues deliveries that were [held back](Replica::is_held_back), as far as the application has room now.
    pub fn go_on_delivering<E: Effects>(&mut self, effects: &mut E) {
        self.agreement.messages.held_back = false;
        if !self.is_superseded() {
            self.deliver(effects);
        }
    }

    /// Returns how often this member caught up in a rare way.
    #[must_use]
    pub fn catch_ups(&self) -> CatchUps {
        self.agreement.messages.catch_ups
    }

    /// Returns the counts of the outcomes of messages to ended histories at this member.
    #[must_use]
    pub fn settlements(&self) -> Settlements {
        self.agreement.messages.settlements
    }

    /// Returns a number that rises each time that this member adopts a state. An adopted state can free slots whose
    /// messages this member did not deliver. It can also use sequence numbers that this member has not seen.
    #[inline]
    #[must_use]
    pub fn states(&self) -> u64 {
        self.agreement.messages.states
    }

    /// Returns the group's clock here: the largest time that this member has assigned, processed or adopted.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.agreement.clock.now()
    }

    fn window(&self, client: ClientId) -> Option<&Window> {
        self.agreement.messages.client(client)
    }

    /// Returns the slot in which [`on_message`](Replica::on_message) would store a message. Returns `None` if the
    /// message is held already, or delivered, or will never be delivered.
    ///
    /// # Errors
    /// See [`Rejected`].
    #[inline]
    pub fn admit(&self, client: ClientId, header: &Header<'_>) -> Result<Option<u64>, Rejected> {
        let window = self.agreement.messages.place(client).ok_or(Rejected::Client(client.0))?;
        let own = header.destinations().find(|to| to.group == self.group()).ok_or(Rejected::NotForUs)?;
        window.admit(client, own.slot, header.sequence)
    }

    /// Returns whether a slot is beyond a client's window here: this member has delivered too little to hold its
    /// message.
    #[must_use]
    pub fn is_beyond(&self, client: ClientId, slot: u64) -> bool {
        self.window(client).is_some_and(|window| window.is_beyond(slot))
    }

    /// Returns whether a stream entry must wait: for its body, for the state of its ballot, or for the state that
    /// contains earlier entries that were lost with a connection.
    #[inline]
    #[must_use]
    pub fn stream_waits(&self, from: ProcessId, item: &StreamItem<'_>) -> bool {
        let stream = self.agreement.ballots.stream;
        if matches!(self.leadership.stage, Stage::Installing(_)) && stream.leader() == from {
            return stream >= self.promised();
        }
        self.agreement.stream_waits(from, item)
    }

    /// Returns whether this member follows the leader of the installed ballot, and no change of ballot is in progress.
    fn is_following(&self) -> bool {
        let settled = self.agreement.ballots.is_current() && !self.is_joining();
        settled && self.leadership.stage == Stage::Idle && !self.agreement.owns_ballot()
    }

    /// Returns all state that determines the next actions of this member, except the order, which is derived from that
    /// state.
    fn essence(&self) -> impl Hash + PartialEq + '_ {
        let Agreement { id, ballots, clock, counter, messages, sharing } = &self.agreement;
        let agreed = (id.me(), ballots, clock, counter, messages, sharing);
        (agreed, self.membership.essence(), &self.leadership, self.starvation)
    }
}

/// Time.
impl Replica {
    /// Sets the physical time, in nanoseconds since 1970. At 0 there is no physical time, and the clock is logical.
    /// While this member leads, it assigns no earlier time, and accepts no time of another group that is more than
    /// `bound` ahead.
    ///
    /// # Errors
    /// Returns [`Rejected::Time`] if the time is 2^62 or later. In this case nothing changes.
    #[inline]
    pub fn set_physical(&mut self, physical: u64, bound: u64) -> Result<(), Rejected> {
        if physical >= END_OF_TIME {
            return Err(Rejected::Time(physical));
        }
        let mutant = self.agreement.id.mutant();
        self.agreement.clock.set_physical(physical, bound, mutant);
        Ok(())
    }
}

/// Inputs.
impl Replica {
    /// Stores a complete message from its client or another member, unless it is held or delivered already.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_message<E: Effects>(
        &mut self,
        client: ClientId,
        header: &Header<'_>,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        let Some(slot) = self.admit(client, header)? else { return Ok(()) };
        let (group, window) = (self.group(), self.agreement.messages.window_mut(client));
        window.make_room(slot);
        window.slot_mut(slot).hold(client, slot, group, header)?;
        self.agreement.sharing.note_held(client, slot, header.groups());
        if !self.is_leader() {
            self.agreement.decide(client, slot);
            self.recovery(effects).body_came();
        }
        self.advance(client, effects);
        Ok(())
    }

    /// Notes that the following entries of a leader's stream belong to this ballot.
    ///
    /// # Errors
    /// Returns [`Rejected::Sender`] if the sender is not a member of this group, or does not lead the ballot.
    pub fn on_begin(&mut self, from: ProcessId, ballot: Ballot) -> Result<(), Rejected> {
        let Agreement { id, ballots, .. } = &mut self.agreement;
        if ballot.leader() != from || id.topology().member_bit(id.group, from).is_none() {
            return Err(Rejected::Sender(from));
        }
        ballots.stream = ballots.stream.max(ballot);
        Ok(())
    }

    /// Processes the next entry of a leader's stream, which must not [wait](Replica::stream_waits). Entries of ended
    /// ballots, and those that the installed state contains, change nothing.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_stream<E: Effects>(
        &mut self,
        from: ProcessId,
        item: &StreamItem<'_>,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        let id = &self.agreement.id;
        if from == id.me() || id.topology().member_bit(id.group, from).is_none() {
            return Err(Rejected::Role);
        }
        if !self.agreement.follows(from) || item.counter <= self.agreement.counter {
            return Ok(());
        }
        Follower { agreement: &mut self.agreement, effects }.on_stream(from, item)
    }

    /// Processes the timestamp of another group's leader.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_timestamp<E: Effects>(
        &mut self,
        from: ProcessId,
        item: &RemoteTimestamp,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        self.agreement.clock.catch_up();
        let Agreement { id, ballots, .. } = &self.agreement;
        let (group, _) = id.member(from)?;
        if item.ballot.leader() != from || group == id.group {
            return Err(Rejected::Sender(from));
        }
        let ballot = ballots.known(group);
        let known = ballots.is_known(group, item.ballot) || mutant!(id.mutant(), IncarnationIgnored);
        if item.ballot < ballot || !known {
            let ended = item.ballot.incarnation() < ballot.incarnation();
            // If the sender knows a larger incarnation of its group, it announces that incarnation in turn.
            effects.send(from, &ballots.announce(group));
            self.agreement.messages.settlements.refused += u64::from(ended);
            return Ok(());
        }
        if ballots.promised.leader() != id.me() {
            // The sender does not know the current leader of this group.
            if !self.is_joining() {
                effects.send(from, &ballots.announce(id.group));
            }
            return Ok(());
        }
        let leads = self.is_leader();
        if self.leader(effects).on_timestamp(from, group, item, leads)? {
            self.advance(item.head.client, effects);
        }
        Ok(())
    }

    /// Processes the acknowledgement of another destination process.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_ack<E: Effects>(&mut self, from: ProcessId, ack: &Ack<'_>, effects: &mut E) -> Result<(), Rejected> {
        self.agreement.clock.catch_up();
        if self.is_joining() {
            return self.agreement.id.member(from).map(|_| ());
        }
        if self.agreement.on_ack(from, ack)? {
            self.advance(ack.head.client, effects);
        }
        Ok(())
    }

    /// Processes a message of another member. If it [fences](PeerMessage::fences) a ballot larger than
    /// [`promised`](Replica::promised), call this only when no process but that ballot's leader can still write to this
    /// member's stream regions, and their content is processed.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_peer_message<E: Effects>(
        &mut self,
        from: ProcessId,
        message: &PeerMessage,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        let id = &self.agreement.id;
        let (group, _) = id.member(from)?;
        id.check_sender(from, group, message)?;
        if self.is_superseded() {
            return Ok(());
        }
        if let Some(state) = message.state() {
            state.check(&id.config, id.group).map_err(Rejected::State)?;
        }
        match message {
            PeerMessage::Join { life } => {
                self.recovery(effects).on_join(Joiner { process: from, life: *life });
            }
            PeerMessage::Remembered { by, incarnation } => {
                self.recovery(effects).on_remembered(from, *by, *incarnation);
            }
            PeerMessage::Elder { life } => self.recovery(effects).on_elder(*life),
            PeerMessage::Campaign { ballot, incarnation, ends, resets, lives } => {
                if lives.len() != id.topology().size(id.group) {
                    return Err(Rejected::State("another number of members"));
                }
                let (ballot, incarnation) = (*ballot, *incarnation);
                let demand = Demand { ballot, incarnation, ends: *ends, resets: *resets, lives };
                self.recovery(effects).on_campaign(from, &demand);
            }
            PeerMessage::Promise { ballot, state } => self.recovery(effects).on_promise(from, *ballot, state),
            PeerMessage::Refuse { promised, incarnation } => self.recovery(effects).on_refuse(*promised, *incarnation),
            PeerMessage::Install { ballot, counter, state, admits, snapshot } => {
                if ballot.incarnation() != state.incarnation.number {
                    return Err(Rejected::State("a state of another incarnation"));
                }
                let install = Install { ballot: *ballot, counter: *counter, state: state.clone() };
                self.recovery(effects).on_install(install, admits, *snapshot);
            }
            PeerMessage::Installed { ballot } => self.recovery(effects).on_installed(from, *ballot),
            PeerMessage::Behind { ballot, snapshot } => self.recovery(effects).on_behind(from, *ballot, *snapshot),
            PeerMessage::Transfer { ballot, state } => self.recovery(effects).on_transfer(from, *ballot, state),
            PeerMessage::Gone(gone) => self.recovery(effects).on_gone(*gone),
            PeerMessage::Probe { ballot } => self.recovery(effects).on_probe(from, *ballot),
            PeerMessage::Announce { .. } | PeerMessage::WordProcessed(_) => self.on_word(from, message, effects),
            PeerMessage::WantBody(wanted) => self.repair(effects).on_want(from, *wanted, 1),
            PeerMessage::WantBodies(wanted) => self.repair(effects).on_want(from, *wanted, BODIES),
            PeerMessage::Ask(asked) => self.on_ask(from, *asked, effects),
            PeerMessage::Decided { message, ballot, times } if *ballot <= self.ballot() => {
                self.on_decided(*message, Some(times), effects);
                if self.repair(effects).is_unusable(from, *message, times) {
                    self.note_starved();
                }
            }
            PeerMessage::Forgotten(forgotten) if group == self.group() => {
                let outrun = self.repair(effects).is_outrun(*forgotten);
                if outrun {
                    let _ = self.campaign(effects);
                }
            }
            PeerMessage::Forgotten(decided) if self.is_leader() => self.on_decided(*decided, None, effects),
            PeerMessage::Seek(wanted) if !self.is_joining() => self.no_ops(effects).on_seek(from, *wanted),
            PeerMessage::Close(about) => self.successions(effects).on_close(from, *about),
            _ if self.is_leader() && !self.on_succession_message(from, group, message, effects) => {
                self.on_no_op_message(from, group, message, effects);
            }
            _ => {}
        }
        Ok(())
    }

    /// Advances time; call it every few milliseconds. Requests and messages without effect are repeated after
    /// [`retry_ticks`](ReplicaConfig::retry_ticks) ticks. Those that are rarely needed wait four times as long.
    pub fn on_tick<E: Effects>(&mut self, effects: &mut E) {
        if self.is_superseded() {
            return;
        }
        let (retry_ticks, ballot) = (self.agreement.id.config.retry_ticks, self.ballot());
        if self.starvation.tick(self.agreement.counter, self.is_following(), retry_ticks.saturating_mul(4)) {
            self.agreement.messages.catch_ups.starved += 1;
            // The application's state may be large, so it is requested only if the group's state alone does not
            // suffice.
            effects.send(ballot.leader(), &PeerMessage::Behind { ballot, snapshot: false });
        }
        if self.membership.wait(&self.agreement.id) {
            self.recovery(effects).found_if_possible();
        }
        self.leadership.age = self.leadership.age.saturating_add(1);
        if self.leadership.age >= retry_ticks {
            self.leadership.age = 0;
            self.recovery(effects).repeat_messages();
        }
        let held_up = self.is_leader() && effects.is_held_up();
        if self.is_leader() && !held_up {
            self.leader(effects).words().tick();
        }
        for client in self.agreement.messages.clients() {
            if self.is_leader() {
                self.successions(effects).tick(client);
                let Agreement { messages, sharing, .. } = &self.agreement;
                let waits = messages.window(client).waits_for_a_time() || sharing.waits(client);
                if self.no_ops(effects).look_for_gap(client) || waits {
                    self.advance(client, effects);
                }
            }
            if held_up {
                // Retries would be appended to the stream that is held up, and fill the leader's memory.
                continue;
            }
            for slot in self.agreement.messages.window(client).open() {
                self.grow_old(client, slot, effects);
            }
        }
    }

    /// Reports that the head of the leader's stream has waited for a while. If the entry waits for its body, the member
    /// requests the body. If the entry waits for earlier entries, `Starvation` decides.
    pub fn on_stalled<E: Effects>(&mut self, item: &StreamItem<'_>, effects: &mut E) {
        let next = item.counter <= self.agreement.counter + 1;
        let Agreement { id, ballots, .. } = &self.agreement;
        let follows = ballots.is_current() && ballots.installed.leader() != id.me() && !self.is_joining();
        if !next && ballots.stream == ballots.installed {
            self.note_starved();
        } else if next && follows {
            self.repair(effects).want_bodies(item);
        }
    }

    /// Reports that the connections with a member are up again. Everything in flight in either direction is lost.
    ///
    /// # Errors
    /// Returns [`Rejected::Sender`] if the peer is not a member of a group.
    pub fn on_connected<E: Effects>(&mut self, peer: ProcessId, effects: &mut E) -> Result<(), Rejected> {
        let (group, _) = self.agreement.id.member(peer)?;
        let own = self.group();
        if self.is_superseded() {
            return Ok(());
        }
        if let Some(life) = self.membership.joining_life() {
            if group == own {
                effects.send(peer, &PeerMessage::Join { life });
            }
            return Ok(());
        }
        if group == own {
            self.recovery(effects).on_connected(peer);
            self.successions(effects).ask_all_to_close();
        } else if self.is_leader() {
            effects.send(peer, &self.agreement.ballots.announce(own));
            if self.known(group).leader() == peer {
                self.leader(effects).send_timestamps_to(group);
            }
        }
        self.agreement.acknowledge_all(Some(peer), effects);
        Ok(())
    }

    /// Begins a campaign in a ballot larger than all known ones, and returns that ballot. A reset in progress goes on
    /// instead. Fence this member's stream regions first, as for [`PeerMessage::fences`], but against all processes.
    ///
    /// # Errors
    /// Returns [`Rejected::Joining`] if this process has no memory, [`Rejected::Superseded`] if a later process has
    /// replaced it, and [`Rejected::Ballot`] if no larger ballot exists.
    pub fn campaign<E: Effects>(&mut self, effects: &mut E) -> Result<Ballot, Rejected> {
        self.recovery(effects).campaign()
    }
}

/// The parts that handle an input, and the steps that several inputs share.
impl Replica {
    fn leader<'a, E>(&'a mut self, effects: &'a mut E) -> Leader<'a, E> {
        Leader { agreement: &mut self.agreement, effects }
    }

    fn no_ops<'a, E>(&'a mut self, effects: &'a mut E) -> NoOps<'a, E> {
        NoOps { agreement: &mut self.agreement, effects }
    }

    fn successions<'a, E>(&'a mut self, effects: &'a mut E) -> Successions<'a, E> {
        let counts_in = self.counts_in();
        Successions { agreement: &mut self.agreement, counts_in, effects }
    }

    fn repair<'a, E>(&'a mut self, effects: &'a mut E) -> Repair<'a, E> {
        let (leads, joining) = (self.is_leader(), self.is_joining());
        Repair { agreement: &mut self.agreement, leads, joining, effects }
    }

    fn recovery<'a, E>(&'a mut self, effects: &'a mut E) -> Recovery<'a, E> {
        let Replica { agreement, membership, leadership, .. } = self;
        Recovery { agreement, membership, leadership, effects }
    }

    /// Assigns, at a leader, the client's messages that may be assigned now. Then delivers all messages that are due.
    fn advance<E: Effects>(&mut self, client: ClientId, effects: &mut E) {
        if self.is_leader() {
            self.leader(effects).assign_ready(client);
        }
        self.deliver(effects);
    }

    /// Delivers due messages. A leader then assigns messages of clients whose shares have room now.
    fn deliver<E: Effects>(&mut self, effects: &mut E) {
        self.agreement.deliver_due(effects);
        if self.is_leader() {
            self.leader(effects).go_on_sharing();
        }
    }

    /// Ages one undelivered slot by a tick.
    fn grow_old<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let window = self.agreement.messages.window(client);
        if !window.is_here(slot) {
            return;
        }
        if !window.slot(slot).no_op {
            self.repair(effects).grow_old(client, slot);
        } else if self.is_leader() && self.no_ops(effects).grow_old(client, slot) {
            self.advance(client, effects);
        }
    }

    /// Notes evidence that the stream lacks entries.
    fn note_starved(&mut self) {
        if self.is_following() && !mutant!(self.agreement.id.mutant(), StateSetBack) {
            self.starvation.note(self.agreement.counter);
        }
    }

    /// Processes an announcement of a group's ballot and history, or a follower's report that it has processed a word.
    fn on_word<E: Effects>(&mut self, from: ProcessId, message: &PeerMessage, effects: &mut E) {
        let in_force = match *message {
            PeerMessage::Announce { group, ballot, incarnation, origin } => {
                if self.is_joining() && group == self.group() {
                    self.membership.memories.hear(from, incarnation);
                }
                self.repair(effects).on_announce(from, group, Known { ballot, incarnation, origin })
            }
            PeerMessage::WordProcessed(word) if self.agreement.owns_ballot() => {
                self.leader(effects).words().on_processed(from, word)
            }
            _ => false,
        };
        if in_force && self.is_leader() {
            // Messages that are decided now without that group may have blocked their clients' later ones.
            self.agreement.messages.clients().for_each(|client| self.advance(client, effects));
        }
    }

    fn on_decided<E: Effects>(&mut self, decided: MessageRef, times: Option<&[u64]>, effects: &mut E) {
        if self.agreement.on_decided(decided, times) {
            self.advance(decided.client, effects);
        }
    }

    /// Handles a message about successions, at a leader. Returns `false` for all other messages.
    fn on_succession_message<E: Effects>(
        &mut self,
        from: ProcessId,
        group: GroupId,
        message: &PeerMessage,
        effects: &mut E,
    ) -> bool {
        let mut successions = self.successions(effects);
        match message {
            PeerMessage::Open(asked) => successions.on_open(*asked),
            PeerMessage::Closed(closed) => successions.on_closed(from, closed),
            PeerMessage::Succeeded(processed) => successions.on_succeeded(from, *processed),
            PeerMessage::Retire(asked) => successions.on_retire(from, *asked),
            PeerMessage::Retired(done) => successions.on_retired(group, *done),
            _ => return false,
        }
        true
    }

    /// Handles a message about a no-op, at a leader.
    fn on_no_op_message<E: Effects>(
        &mut self,
        from: ProcessId,
        group: GroupId,
        message: &PeerMessage,
        effects: &mut E,
    ) {
        let mut no_ops = self.no_ops(effects);
        let due = match message {
            PeerMessage::Refused(verdict) => no_ops.on_refused(group, *verdict).then_some(verdict.message.client),
            PeerMessage::Lost(verdict) => no_ops.on_lost(group, *verdict).then_some(verdict.message.client),
            PeerMessage::Lacking(lacked) => no_ops.on_lacking(from, *lacked).then_some(lacked.client),
            PeerMessage::NoOpProcessed(processed) => no_ops.on_processed(from, *processed).then_some(processed.client),
            _ => None,
        };
        if let Some(client) = due {
            self.advance(client, effects);
        }
    }

    fn on_ask<E: Effects>(&mut self, from: ProcessId, asked: MessageRef, effects: &mut E) {
        // A follower that asks about a message that is not retained here needs the state. It asks about many messages
        // at once, but only the first question causes a state to be sent (`install_at` clears `installed`).
        let installed = self.leadership.installed & self.agreement.id.bit_of(from) != 0;
        if self.is_leader() && self.repair(effects).on_ask(from, asked) && installed {
            self.recovery(effects).install_at(from, true);
        }
    }
}

impl PartialEq for Replica {
    fn eq(&self, other: &Self) -> bool {
        self.essence() == other.essence()
    }
}

impl Eq for Replica {}

impl Hash for Replica {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.essence().hash(state);
    }
}
