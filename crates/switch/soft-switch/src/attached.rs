//! A host of one set that is driven by hand: an endpoint in user space with one queue pair that sends and one that
//! receives. It is for tests and benches of the switch; fabrics have their own host side.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, Completion, PostError, QpConfig, QpId, QpKind, RegionId, Span, Status};
use stentor_fabric_roce::driver::{Mode, Port, PortError, Pump};
use stentor_fabric_roce::endpoint::{
    Endpoint, Path, ProtectionDomain, Remote, Request, Sending, State, TransitionError, Work,
};
use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::{Attachment, Host, Switch};
use stentor_wire::{Psn, RnrTimer};
use thiserror::Error;

const DOMAIN: ProtectionDomain = ProtectionDomain(1);
/// Distance between the ranks' memory regions in the senders' address space, in bytes.
const VA: u64 = 0x1000_0000;
/// Maximum depth of a queue.
const DEPTH: u32 = 256;

/// The configuration of an attached host: its address, its set and its connection.
#[derive(Clone, Copy, Debug)]
pub struct AttachedConfig {
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Plain or raw sockets.
    pub mode: Mode,
    /// Rank of the host in the set.
    pub rank: u8,
    /// Number of the set at the switch.
    pub gid: u16,
    /// Forward address of the switch.
    pub forward: Ipv4Addr,
    /// Backward address of the switch.
    pub backward: Ipv4Addr,
    /// Path MTU, in bytes.
    pub mtu: u16,
    /// Maximum number of packets in flight.
    pub window: u32,
    /// Memory that senders write to, in words of 8 bytes. Receives use a second region of the same size.
    pub words: usize,
    /// Code of the transport timeout, see [`Sending::timeout`].
    pub timeout: u8,
    /// Life of the host. Successive lives have different queue pair numbers and first PSNs.
    pub life: u32,
}

impl AttachedConfig {
    /// Returns a configuration with path MTU 1024, a window of 64 packets, 64 KiB of memory, a timeout of 16.8 ms, and
    /// plain sockets.
    #[must_use]
    pub fn new(address: Ipv4Addr, rank: u8, gid: u16, [forward, backward]: [Ipv4Addr; 2]) -> AttachedConfig {
        AttachedConfig {
            address,
            mode: Mode::Plain,
            rank,
            gid,
            forward,
            backward,
            mtu: 1024,
            window: 64,
            words: 8192,
            timeout: 12,
            life: 0,
        }
    }

    fn numbers(&self) -> [u32; 2] {
        let base = 0x1000 + 0x40_0000_u32.wrapping_mul(self.life & 1) + (self.life << 9 & 0x3f_fe00);
        [base + u32::from(self.rank), base + 0x100 + u32::from(self.rank)]
    }

    /// Returns the first PSN that the host sends and the first one that it expects.
    fn firsts(&self) -> [Psn; 2] {
        let salt = self.life.wrapping_mul(0x1_2345).wrapping_add(u32::from(self.rank) * 1000);
        [Psn::new(salt.wrapping_add(0xff_fff0)), Psn::new(salt.wrapping_mul(7).wrapping_add(77))]
    }
}

/// Reason why a host cannot be attached.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The sockets cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A queue pair cannot change its state.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// The addresses of the two ends do not match.
    #[error(transparent)]
    Envelope(#[from] stentor_wire::Error),
    /// The number of a queue pair is in use, or the memory region cannot be granted.
    #[error("the number of a queue pair is in use")]
    Number,
}

/// A host that is attached to a switch.
#[derive(Debug)]
pub struct Attached {
    /// Queue pairs and memory.
    pub endpoint: Endpoint,
    /// The sockets.
    pub pump: Pump,
    /// The queue pair that sends.
    pub sqp: QpId,
    /// The queue pair that receives.
    pub rqp: QpId,
    /// The region that senders write to.
    pub shared: RegionId,
    /// The region that receives are posted into.
    pub local: RegionId,
    key: u32,
    config: AttachedConfig,
    /// Number of requests that the sending queue pair has posted.
    messages: u32,
}

impl Attached {
    /// Creates a host whose queue pairs are not connected yet.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn open(config: AttachedConfig) -> Result<Attached, AttachError> {
        let port = Port::open(config.address.into(), config.mode, u16::from(config.rank))?;
        let mut endpoint = Endpoint::new();
        let shared = endpoint.memory_mut().register(config.words, VA * (u64::from(config.rank) + 1));
        let local = endpoint.memory_mut().register(config.words, 0);
        let key = endpoint.memory_mut().grant(shared, DOMAIN, Access::Write, 0x100 + u16::from(config.rank));
        let key = key.ok_or(AttachError::Number)?;
        let made = QpConfig { kind: QpKind::Reliable, send_depth: DEPTH, recv_depth: DEPTH, merges: false };
        let [send, receive] = config.numbers();
        let sqp = endpoint.create(send, DOMAIN, made).ok_or(AttachError::Number)?;
        let rqp = endpoint.create(receive, DOMAIN, made).ok_or(AttachError::Number)?;
        Ok(Attached { endpoint, pump: Pump::new(port), sqp, rqp, shared, local, key, config, messages: 0 })
    }

    /// Creates a host and connects it to the set that its configuration names.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn connected(config: AttachedConfig) -> Result<Attached, AttachError> {
        let mut host = Attached::open(config)?;
        host.connect(config.gid)?;
        Ok(host)
    }

    /// Begins another life: resets the queue pairs and gives them other numbers. They are not connected afterwards.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn begin_anew(&mut self) -> Result<(), AttachError> {
        for qp in [self.sqp, self.rqp] {
            self.endpoint.reset(qp)?;
        }
        while self.endpoint.poll().is_some() {}
        while self.endpoint.next_broken().is_some() {}
        (self.config.life, self.messages) = (self.config.life.wrapping_add(1), 0);
        let [send, receive] = self.config.numbers();
        if self.endpoint.renumber(self.sqp, send) && self.endpoint.renumber(self.rqp, receive) {
            Ok(())
        } else {
            Err(AttachError::Number)
        }
    }

    /// Connects both queue pairs to a set at the switch.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn connect(&mut self, gid: u16) -> Result<(), AttachError> {
        self.config.gid = gid;
        let config = self.config;
        let [first_psn, expected] = config.firsts();
        let path = |to: Ipv4Addr, dest_qp, expected_psn| -> Result<Path, AttachError> {
            let envelope = self.pump.port().envelope(IpAddr::V4(to))?;
            let min_rnr_timer = RnrTimer::from_code(12);
            Ok(Path { envelope, dest_qp, expected_psn, mtu: config.mtu, max_dest_rd_atomic: 1, min_rnr_timer })
        };
        let forward = path(config.forward, Switch::vrqpn(config.gid, config.rank), Psn::new(0))?;
        let backward = path(config.backward, Switch::vsqpn(config.gid, config.rank), expected)?;
        for (qp, path) in [(self.sqp, forward), (self.rqp, backward)] {
            self.endpoint.init(qp)?;
            self.endpoint.ready_to_receive(qp, path)?;
        }
        let sending = Sending { timeout: config.timeout, window: config.window, ..Sending::new(first_psn) };
        Ok(self.endpoint.ready_to_send(self.sqp, sending)?)
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &AttachedConfig {
        &self.config
    }

    /// Returns the description of the host for the switch.
    #[must_use]
    pub fn description(&self) -> Host {
        let ([send, receive], [first_psn, expected]) = (self.config.numbers(), self.config.firsts());
        let attachment = |qpn, first_psn| Attachment { ip: self.config.address, qpn, first_psn };
        Host { sends: attachment(send, first_psn), receives: attachment(receive, expected) }
    }

    /// Returns the link with which a sender reaches this host. `offset` is added to the addresses of the WRITEs.
    #[must_use]
    pub fn link(&self, offset: u64) -> Link {
        let rank = self.config.rank;
        Link { rank, rkey: self.key, base: VA * (u64::from(rank) + 1) + offset }
    }

    /// Posts `count` receives of `bytes` bytes each. All of them use the beginning of [`local`](Attached::local).
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_receives(&mut self, count: u32, bytes: u32) -> Result<(), PostError> {
        let span = Span { region: self.local, offset: 0, bytes };
        (0..count).try_for_each(|_| self.endpoint.post_receive(self.rqp, span, 0))
    }

    /// Posts a signalled control packet.
    ///
    /// # Errors
    /// See [`PostError`].
    ///
    /// # Panics
    /// Panics if more members are linked than a set can have.
    pub fn control(&mut self, operation: Operation, links: &[Link], id: u64) -> Result<(), PostError> {
        let mut payload = [0; MAX_CONTROL_BYTES];
        let psn = self.endpoint.next_psn(self.sqp).unwrap_or(Psn::new(0));
        let [sqpn, _] = self.config.numbers();
        let lock_id = 1 + u32::from(self.config.rank);
        let head = Head { operation, lock_id, epoch: 0, sqpn, psn, msn: self.messages & 0xff_ffff };
        let len = control::emit(&head, &[], links, &mut payload).expect("at most 32 links");
        let remote = Remote { va: CONTROL_VA, rkey: CONTROL_RKEY };
        let data = stentor_fabric_roce::endpoint::Data::Inline(&payload[..len]);
        self.post(&Work::signalled(id, Request::Write { data, remote, imm: None }))
    }

    /// Posts a request to the set.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post(&mut self, work: &Work<'_>) -> Result<(), PostError> {
        self.endpoint.post_send(self.sqp, work)?;
        self.messages = self.messages.wrapping_add(1);
        Ok(())
    }

    /// Sends due packets and receives waiting ones. Returns whether any were received.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn drive(&mut self) -> io::Result<bool> {
        self.pump.send(&mut self.endpoint);
        self.pump.receive(&mut self.endpoint)
    }

    /// Returns the next completion, and whether it belongs to the receiving queue pair.
    pub fn poll(&mut self) -> Option<(Completion, bool)> {
        let completion = self.endpoint.poll()?;
        Some((completion, completion.qp == self.rqp))
    }

    /// Returns whether both queue pairs work.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let state = |qp| self.endpoint.state(qp);
        state(self.sqp) == Some(State::ReadyToSend) && state(self.rqp) == Some(State::ReadyToReceive)
    }

    /// Returns bytes of the memory that senders write to.
    #[must_use]
    pub fn bytes(&self, offset: usize, bytes: usize) -> Vec<u8> {
        load(&self.endpoint, self.shared, offset, bytes)
    }

    /// Returns bytes of the memory that receives use.
    #[must_use]
    pub fn received(&self, offset: usize, bytes: usize) -> Vec<u8> {
        load(&self.endpoint, self.local, offset, bytes)
    }
}

fn load(endpoint: &Endpoint, region: RegionId, offset: usize, bytes: usize) -> Vec<u8> {
    let words = &endpoint.memory().words(region)[offset / WORD..];
    let all = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    all.skip(offset % WORD).take(bytes).collect()
}

/// Drives hosts in turn, until the first host's request `id` is done. Calls `between` after each host, for switches
/// that have no thread. Passes each completed receive, with the index of its host, to `received`. Returns the status of
/// the request, or `None` after `rounds` rounds.
///
/// # Errors
/// Returns the error of the system call.
pub fn settle(
    hosts: &mut [Attached],
    id: u64,
    rounds: u64,
    mut between: impl FnMut() -> io::Result<()>,
    mut received: impl FnMut(usize, Completion),
) -> io::Result<Option<Status>> {
    for _ in 0..rounds {
        for (n, host) in hosts.iter_mut().enumerate() {
            host.drive()?;
            between()?;
            while let Some((completion, receives)) = host.poll() {
                if receives {
                    received(n, completion);
                } else if n == 0 && completion.id == id {
                    return Ok(Some(completion.status));
                }
            }
        }
    }
    Ok(None)
}
