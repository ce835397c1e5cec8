//! The intended effect of the senders' work requests: a stream of packets, each with its receivers.

/// A member that a control packet links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Linked {
    /// Rank of the member.
    pub rank: u8,
    /// Offset that the switch adds to addresses.
    pub base: u64,
    /// Key of the member's region.
    pub rkey: u32,
}

/// The kind of a work request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// A control packet that links these members. They are the receivers of the messages that follow.
    Link(Vec<Linked>),
    /// A control packet that releases the set. Only the switch executes it.
    Release,
    /// A control packet that queries the switch. It does not change the members.
    Query,
    /// A message, with its target address if it is a WRITE.
    Message(Option<u64>),
}

/// A work request of a sender.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Posted {
    /// Number of packets of the work request.
    pub packets: u32,
    /// The kind of the work request.
    pub what: What,
}

/// A packet of a stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Packet {
    /// The index in `links` of the control packet that determines the receivers. `None` for control packets, and for
    /// data outside of a session.
    pub(super) session: Option<u32>,
    /// `true` if the packet is the last one of its message.
    pub(super) ends: bool,
    /// The target address, if the packet's headers contain it.
    pub(super) va: Option<u64>,
    /// Number of messages that end with this packet or before it.
    pub(super) messages: u32,
}

/// All packets that a sender posted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stream {
    first: u32,
    packets: Vec<Packet>,
    links: Vec<Vec<Linked>>,
    session: Option<u32>,
    /// Index up to which all acknowledgements were found sound.
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

    /// Returns the index of a PSN in the stream. It is a large number if the PSN is before the first one.
    pub(super) fn place(&self, psn: u32) -> u32 {
        psn.wrapping_sub(self.first) & 0xff_ffff
    }

    pub(super) fn packet(&self, place: u32) -> Option<&Packet> {
        self.packets.get(place as usize)
    }

    /// Returns the number of posted packets.
    pub(super) fn len(&self) -> u32 {
        self.packets.len() as u32
    }

    /// Returns the receivers of a packet.
    pub(super) fn members(&self, packet: &Packet) -> &[Linked] {
        packet.session.and_then(|session| self.links.get(session as usize)).map_or(&[], |links| links)
    }

    /// Returns the receiver with this rank, if the packet is for it.
    pub(super) fn member(&self, packet: &Packet, rank: u8) -> Option<Linked> {
        self.members(packet).iter().copied().find(|linked| linked.rank == rank)
    }

    /// Returns the first index at or after `from` whose packet is for this receiver.
    pub(super) fn next_for(&self, from: u32, rank: u8) -> Option<u32> {
        (from..self.len()).find(|place| self.packet(*place).is_some_and(|packet| self.member(packet, rank).is_some()))
    }
}
