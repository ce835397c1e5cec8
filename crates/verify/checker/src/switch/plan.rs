//! What senders mean: their streams of packets, with whom each is for.

/// A member that a control packet links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Linked {
    /// Who.
    pub rank: u8,
    /// What is added to addresses.
    pub base: u64,
    /// Key.
    pub rkey: u32,
}

/// What was posted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// From here on these are the members.
    Link(Vec<Linked>),
    /// Another control packet: nobody but the switch executes it, and a query changes nothing.
    Release,
    /// The same members as before.
    Query,
    /// A message, with the address that it is written to, if it is a WRITE.
    Message(Option<u64>),
}

/// A work request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Posted {
    /// Packets that it takes.
    pub packets: u32,
    /// What it is.
    pub what: What,
}

/// A packet of a stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Packet {
    /// The control packet that says whom it is for, as a place in `links`; none for control packets, and for data without one.
    pub(super) session: Option<u32>,
    /// Whether a message ends with it.
    pub(super) ends: bool,
    /// Where it is written to, if its headers say so.
    pub(super) va: Option<u64>,
    /// Messages that end with it or before it.
    pub(super) messages: u32,
}

/// All that a sender posted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stream {
    first: u32,
    packets: Vec<Packet>,
    links: Vec<Vec<Linked>>,
    session: Option<u32>,
    /// Places up to which all acknowledgements were found right.
    pub(super) sound: u32,
}

impl Stream {
    pub(super) fn new(first: u32) -> Stream {
        Stream { first, packets: Vec::new(), links: Vec::new(), session: None, sound: 0 }
    }

    pub(super) fn post(&mut self, posted: &Posted) {
        let mut messages = self.packets.last().map_or(0, |packet| packet.messages);
        let is_data = matches!(posted.what, What::Message(_));
        for number in 0..posted.packets {
            let ends = number + 1 == posted.packets;
            messages += u32::from(ends);
            let va = match posted.what {
                What::Message(va) if number == 0 => va,
                _ => None,
            };
            let session = self.session.filter(|_| is_data);
            self.packets.push(Packet { session, ends, va, messages });
        }
        match &posted.what {
            What::Link(links) => {
                self.links.push(links.clone());
                self.session = Some(self.links.len() as u32 - 1);
            }
            What::Release => self.session = None,
            What::Query | What::Message(_) => {}
        }
    }

    /// The place of a PSN; a large number if it is before the first.
    pub(super) fn place(&self, psn: u32) -> u32 {
        psn.wrapping_sub(self.first) & 0xff_ffff
    }

    pub(super) fn packet(&self, place: u32) -> Option<&Packet> {
        self.packets.get(place as usize)
    }

    /// Packets posted.
    pub(super) fn len(&self) -> u32 {
        self.packets.len() as u32
    }

    /// Whom a packet is for.
    pub(super) fn members(&self, packet: &Packet) -> &[Linked] {
        packet.session.and_then(|session| self.links.get(session as usize)).map_or(&[], |links| links)
    }

    /// A member that a packet is for.
    pub(super) fn member(&self, packet: &Packet, rank: u8) -> Option<Linked> {
        self.members(packet).iter().copied().find(|linked| linked.rank == rank)
    }

    /// The first place from `from` on whose packet is for a receiver.
    pub(super) fn next_for(&self, from: u32, rank: u8) -> Option<u32> {
        (from..self.len()).find(|place| self.packet(*place).is_some_and(|packet| self.member(packet, rank).is_some()))
    }
}
