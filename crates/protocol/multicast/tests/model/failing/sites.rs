//! A site: a member together with everything in flight to it, which decides what the member may do next.
//!
//! Each site is stored once and identified by a number, so a state of the cluster is one number per member.

use std::collections::HashMap;
use std::rc::Rc;

use super::channels::Parcel;
use super::member::{Context, Member};
use super::store::{Cause, Store};
use crate::store::{EMPTY, Map, Table};

/// One member, and the contents of each channel into it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Site {
    pub(super) member: u32,
    pub(super) queues: Vec<u32>,
}

/// A write: its receiver, the position of its channel among those into the receiver, and the parcel.
pub(super) type Sent = (u16, u16, u32);

/// One step of one member.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) cause: Cause,
    pub(super) next: u32,
    pub(super) sends: Vec<Sent>,
}

/// A site that can be reached without writing anything.
pub(super) struct Node {
    pub(super) site: u32,
    /// The predecessor nodes, and the step from each.
    pub(super) from: Vec<(usize, Cause)>,
}

/// All sites seen so far.
pub(super) struct Sites<'a> {
    pub(super) context: &'a Context,
    pub(super) store: Store,
    table: Table<Site>,
    /// Position of each channel among the channels into its receiver, indexed by channel.
    places: Vec<u16>,
    moves: Vec<Option<Rc<[Move]>>>,
    pushed: Map<(u32, u16, u32), u32>,
}

impl<'a> Sites<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let mut places = vec![0; context.channels.wires.len()];
        for into in &context.channels.into {
            (0..).zip(into).for_each(|(place, wire)| places[*wire] = place);
        }
        let (store, table) = (Store::new(), Table::new());
        Sites { context, store, table, places, moves: Vec::new(), pushed: HashMap::default() }
    }

    pub(super) fn number(&mut self, site: Site) -> u32 {
        let number = self.table.number(site);
        self.moves.resize(self.table.len(), None);
        number
    }

    pub(super) fn get(&self, site: u32) -> &Site {
        self.table.get(site)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn member(&self, site: u32) -> &Member {
        self.store.member(self.get(site).member)
    }

    /// Returns the channels into a site's member, by position.
    pub(super) fn wires(&self, site: u32) -> &'a [usize] {
        &self.context.channels.into[usize::from(self.member(site).process)]
    }

    /// Returns the site without parcels that can have no effect any more: see `reduce`.
    fn reduced(&mut self, mut site: Site, wires: &[usize]) -> u32 {
        for (queue, wire) in site.queues.iter_mut().zip(wires) {
            *queue = self.store.effective(self.context, site.member, *wire, *queue);
        }
        self.number(site)
    }

    /// Returns the initial site of every member. The channels from clients already contain the bodies of all messages,
    /// those of requests all requests, and all other channels are empty.
    pub(super) fn begin(&mut self) -> Vec<u32> {
        let context = self.context;
        let mut sites = Vec::new();
        for (process, into) in (0..).zip(&context.channels.into) {
            let member = self.store.add_member(Member::new(context, process));
            sites.push(self.number(Site { member, queues: vec![EMPTY; into.len()] }));
        }
        for (wire, parcel) in context.first_parcels() {
            let parcel = self.store.add_parcel(parcel);
            let sent = self.sent(wire, parcel);
            let site = &mut sites[usize::from(sent.0)];
            *site = self.push(*site, sent);
        }
        sites
    }

    fn sent(&self, wire: usize, parcel: u32) -> Sent {
        (self.context.channels.wires[wire].receiver() as u16, self.places[wire], parcel)
    }

    /// Returns the site after a message was written into a channel.
    pub(super) fn push(&mut self, site: u32, (_, place, parcel): Sent) -> u32 {
        if let Some(known) = self.pushed.get(&(site, place, parcel)) {
            return *known;
        }
        let (mut next, wires) = (self.get(site).clone(), self.wires(site));
        let queue = &mut next.queues[usize::from(place)];
        *queue = self.store.push(*queue, parcel);
        let next = self.reduced(next, wires);
        self.pushed.insert((site, place, parcel), next);
        next
    }

    /// Returns every step that the member can make now: what it can take, and last a campaign.
    pub(super) fn moves(&mut self, site: u32) -> Rc<[Move]> {
        if let Some(known) = &self.moves[site as usize] {
            return known.clone();
        }
        let (here, wires) = (self.get(site).clone(), self.wires(site));
        let mut moves = Vec::new();
        for (place, wire) in wires.iter().enumerate().filter(|(place, _)| here.queues[*place] != EMPTY) {
            let (parcel, rest) = self.store.pop(here.queues[place]);
            let mut queues = here.queues.clone();
            queues[place] = rest;
            moves.extend(self.move_of(Site { queues, ..here }, wires, Cause::Take(*wire as u16, parcel)));
        }
        let ready = self.member(site).replica.as_ref().is_some_and(|replica| !replica.is_joining());
        if ready {
            moves.extend(self.move_of(here, wires, Cause::Campaign));
        }
        let moves: Rc<[Move]> = moves.into();
        self.moves[site as usize] = Some(moves.clone());
        moves
    }

    /// Returns a step, or `None` if it must wait. `site` is the site without the parcel that is taken.
    fn move_of(&mut self, mut site: Site, wires: &[usize], cause: Cause) -> Option<Move> {
        let outcome = self.store.outcome(self.context, site.member, cause)?;
        let (next, sends) = (outcome.next, outcome.sends.clone());
        let sends = sends.into_iter().map(|(wire, parcel)| self.sent(wire, parcel)).collect();
        site.member = next;
        Some(Move { cause, next: self.reduced(site, wires), sends })
    }

    /// Returns all sites that the member can reach without writing anything, this one first.
    pub(super) fn silent(&mut self, site: u32) -> Vec<Node> {
        let mut nodes = vec![Node { site, from: Vec::new() }];
        let mut known = HashMap::from([(site, 0)]);
        let mut at = 0;
        while at < nodes.len() {
            for step in self.moves(nodes[at].site).iter().filter(|step| step.is_silent()) {
                let node = *known.entry(step.next).or_insert(nodes.len());
                if node == nodes.len() {
                    nodes.push(Node { site: step.next, from: Vec::new() });
                }
                nodes[node].from.push((at, step.cause));
            }
            at += 1;
        }
        nodes
    }

    /// Returns the site after all messages from a process are lost.
    pub(super) fn without(&mut self, site: u32, process: u16) -> u32 {
        let (mut left, wires) = (self.get(site).clone(), self.wires(site));
        for (queue, wire) in left.queues.iter_mut().zip(wires) {
            if self.context.channels.writer(*wire) == Some(process) {
                *queue = EMPTY;
            }
        }
        self.number(left)
    }

    /// Returns the site of a member that has crashed.
    pub(super) fn crashed(&mut self, site: u32) -> u32 {
        let mut member = self.member(site).clone();
        member.crash();
        let queues = vec![EMPTY; self.get(site).queues.len()];
        let member = self.store.add_member(member);
        self.number(Site { member, queues })
    }

    /// Returns the contents of a channel.
    pub(super) fn parcels(&self, queue: u32) -> impl Iterator<Item = &Parcel> {
        self.store.queue(queue).iter().map(|parcel| self.store.parcel(*parcel))
    }
}

impl Move {
    /// Returns whether the step processes a message and writes none.
    pub(super) fn is_silent(&self) -> bool {
        self.sends.is_empty() && self.is_take()
    }

    pub(super) fn is_take(&self) -> bool {
        matches!(self.cause, Cause::Take(..))
    }
}
