//! An in-memory device. The queue pairs of both processes reach each other, and posted work is executed at once.

use std::collections::{BTreeMap, VecDeque};

use super::names;
use super::sys;
use crate::calls::log::say;

/// Maximum length of inline data of a queue pair, in bytes.
pub(crate) const INLINE_BYTES: u32 = 220;
/// Number of bits by which the number of the process is shifted in numbers of objects.
const SHIFT: u32 = 16;

/// A memory registration.
pub(crate) struct Mr {
    pub(crate) pd: usize,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) access: u32,
    /// Number of the memory in the log.
    pub(crate) memory: u32,
}

/// A posted receive: its id, and the memory for the data.
type Receive = (u64, Option<sys::ibv_sge>);

pub(crate) struct Qp {
    pub(crate) raw: usize,
    pub(crate) pd: usize,
    pub(crate) queues: [usize; 2],
    pub(crate) state: u32,
    pub(crate) reliable: bool,
    pub(crate) attributes: sys::ibv_qp_attr,
    pub(crate) receives: VecDeque<Receive>,
}

pub(crate) struct Queue {
    pub(crate) process: usize,
    pub(crate) number: u32,
    pub(crate) channel: usize,
    pub(crate) entries: VecDeque<sys::ibv_wc>,
    pub(crate) armed: bool,
}

/// A descriptor that is readable while events are queued.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) fd: i32,
    /// Queued events. An event of a context is its type and its subject. An event of a channel is 0 and the completion
    /// queue.
    pub(crate) waiting: VecDeque<(u32, u64)>,
}

/// All objects of the device, by address. The log names them by number.
#[derive(Default)]
pub(crate) struct Device {
    /// Process that opens the device next.
    pub(crate) opener: usize,
    pub(crate) contexts: BTreeMap<usize, usize>,
    pub(crate) bells: BTreeMap<usize, Bell>,
    pub(crate) domains: BTreeMap<usize, (usize, u32)>,
    pub(crate) regions: BTreeMap<u32, Mr>,
    pub(crate) queues: BTreeMap<usize, Queue>,
    pub(crate) pairs: BTreeMap<u32, Qp>,
    /// Memory numbers by address, for each process.
    memories: [BTreeMap<u64, u32>; 2],
    counts: BTreeMap<(usize, &'static str), u32>,
    /// Errors to inject: process, call and errno. Each is injected once.
    pub(crate) faults: Vec<(usize, &'static str, i32)>,
    pub(crate) port_down: bool,
}

/// Returns the process that owns a queue pair or key.
pub(crate) fn owner(number: u32) -> usize {
    (number >> SHIFT) as usize - 1
}

pub(crate) fn short(number: u32) -> u32 {
    number & ((1 << SHIFT) - 1)
}

impl Device {
    /// Returns the next number for a kind of object of a process.
    pub(crate) fn count(&mut self, process: usize, kind: &'static str) -> u32 {
        let count = self.counts.entry((process, kind)).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn qp_number(&mut self, process: usize) -> u32 {
        (process as u32 + 1) << SHIFT | self.count(process, "queue pair")
    }

    /// Returns the smallest key that no registration has. It is soon reused, as on a device with few keys.
    pub(crate) fn key(&self, process: usize) -> u32 {
        let first = (process as u32 + 1) << SHIFT;
        (first + 1..).find(|key| !self.regions.contains_key(key)).unwrap()
    }

    /// Returns the number of the memory at this address.
    pub(crate) fn memory(&mut self, process: usize, at: u64) -> u32 {
        if let Some(number) = self.memories[process].get(&at) {
            return *number;
        }
        let number = self.count(process, "memory");
        self.memories[process].insert(at, number);
        number
    }

    /// Removes a registration. The address of memory without any registration is forgotten, because it may be freed and
    /// reused.
    pub(crate) fn forget(&mut self, key: u32) -> Option<Mr> {
        let gone = self.regions.remove(&key)?;
        let process = owner(key);
        if !self.regions.iter().any(|(other, mr)| owner(*other) == process && mr.at == gone.at) {
            self.memories[process].remove(&gone.at);
        }
        Some(gone)
    }

    /// Returns the error to inject into this call, if any.
    pub(crate) fn fault(&mut self, process: usize, call: &str) -> Option<i32> {
        let at = self.faults.iter().position(|(whose, what, _)| *whose == process && *what == call)?;
        let (_, what, errno) = self.faults.remove(at);
        say(process, format!("  {what} fails with {errno}"));
        Some(errno)
    }

    /// Queues an asynchronous event of the device.
    pub(crate) fn event(&mut self, process: usize, event: u32, about: u64) {
        let context = self.contexts.iter().find(|(_, whose)| **whose == process).map(|(context, _)| *context);
        let bell = context.and_then(|context| self.bells.get_mut(&context)).expect("the device is open");
        bell.waiting.push_back((event, about));
        ring(bell.fd);
    }

    fn complete(&mut self, queue: usize, entry: sys::ibv_wc) {
        let own = self.queues.get_mut(&queue).expect("the completion queue exists");
        own.entries.push_back(entry);
        if std::mem::take(&mut own.armed)
            && let Some(bell) = self.bells.get_mut(&own.channel)
        {
            bell.waiting.push_back((0, queue as u64));
            ring(bell.fd);
        }
    }

    fn received(&mut self, qp: u32, id: u64, status: u32, (opcode, bytes, imm): (u32, u32, Option<u32>)) {
        let mut entry = sys::ibv_wc { wr_id: id, status, opcode, byte_len: bytes, qp_num: qp, ..Default::default() };
        if let Some(imm) = imm {
            entry.wc_flags = sys::IBV_WC_WITH_IMM;
            entry.__bindgen_anon_1.imm_data = imm;
        }
        self.complete(self.pairs[&qp].queues[1], entry);
    }

    fn sent(&mut self, qp: u32, wr: &sys::ibv_send_wr, status: u32) {
        let opcode = names::completed(wr.opcode);
        let entry = sys::ibv_wc { wr_id: wr.wr_id, status, opcode, qp_num: qp, ..Default::default() };
        self.complete(self.pairs[&qp].queues[0], entry);
    }

    /// Breaks a queue pair and flushes its receives.
    pub(crate) fn break_pair(&mut self, qp: u32) {
        let Some(own) = self.pairs.get_mut(&qp) else { return };
        own.state = sys::IBV_QPS_ERR;
        for (id, _) in std::mem::take(&mut own.receives) {
            self.received(qp, id, sys::IBV_WC_WR_FLUSH_ERR, (0, 0, None));
        }
    }

    /// Fails a request at the responder, whose queue pair breaks as well.
    fn refuse(&mut self, peer: u32, event: u32, status: u32) -> Result<(), u32> {
        let raw = self.pairs[&peer].raw as u64;
        self.event(owner(peer), event, raw);
        self.break_pair(peer);
        Err(status)
    }

    /// Executes a posted request.
    pub(crate) fn send(&mut self, qp: u32, wr: &sys::ibv_send_wr) {
        let own = &self.pairs[&qp];
        let (broken, reliable) = (own.state == sys::IBV_QPS_ERR, own.reliable);
        let done = if broken { Err(sys::IBV_WC_WR_FLUSH_ERR) } else { self.carry_out(qp, wr) };
        match done {
            Ok(()) if wr.send_flags & sys::IBV_SEND_SIGNALED == 0 => {}
            Ok(()) => self.sent(qp, wr, sys::IBV_WC_SUCCESS),
            // The sender on an unreliable connection is not informed of a loss.
            Err(sys::IBV_WC_RETRY_EXC_ERR | sys::IBV_WC_RNR_RETRY_EXC_ERR) if !reliable => {
                self.sent(qp, wr, sys::IBV_WC_SUCCESS);
            }
            Err(status) => {
                self.sent(qp, wr, status);
                self.break_pair(qp);
            }
        }
    }

    /// Returns the queue pair at the other end, if both are connected to each other with matching packet sequence
    /// numbers.
    fn peer(&self, qp: u32) -> Option<u32> {
        let own = &self.pairs[&qp].attributes;
        let peer = self.pairs.get(&own.dest_qp_num)?;
        let answers = [sys::IBV_QPS_RTR, sys::IBV_QPS_RTS].contains(&peer.state);
        let is_it = peer.attributes.dest_qp_num == qp && peer.attributes.rq_psn == own.sq_psn;
        (answers && is_it).then_some(own.dest_qp_num)
    }

    fn carry_out(&mut self, qp: u32, wr: &sys::ibv_send_wr) -> Result<(), u32> {
        let local = names::element(wr.sg_list, wr.num_sge);
        if wr.send_flags & sys::IBV_SEND_INLINE == 0 {
            self.check_local(qp, local)?;
        }
        let peer = self.peer(qp).ok_or(sys::IBV_WC_RETRY_EXC_ERR)?;
        let (from, bytes) = local.map_or((0, 0), |sge| (sge.addr, sge.length));
        let (place, key) = names::remote(wr);
        match wr.opcode {
            sys::IBV_WR_SEND | sys::IBV_WR_SEND_WITH_IMM => self.take_message(peer, wr, from, bytes),
            sys::IBV_WR_RDMA_WRITE | sys::IBV_WR_RDMA_WRITE_WITH_IMM => {
                let with_imm = wr.opcode == sys::IBV_WR_RDMA_WRITE_WITH_IMM;
                if with_imm && self.pairs[&peer].receives.is_empty() {
                    return Err(sys::IBV_WC_RNR_RETRY_EXC_ERR);
                }
                self.check_remote(peer, (place, key), bytes, sys::IBV_ACCESS_REMOTE_WRITE)?;
                names::copy(from, place, bytes);
                if with_imm {
                    let (id, _) = self.pairs.get_mut(&peer).unwrap().receives.pop_front().unwrap();
                    let what = (sys::IBV_WC_RECV_RDMA_WITH_IMM, bytes, Some(names::imm(wr)));
                    self.received(peer, id, sys::IBV_WC_SUCCESS, what);
                }
                Ok(())
            }
            sys::IBV_WR_RDMA_READ => {
                self.check_remote(peer, (place, key), bytes, sys::IBV_ACCESS_REMOTE_READ)?;
                names::copy(place, from, bytes);
                Ok(())
            }
            _ => {
                self.check_remote(peer, (place, key), 8, sys::IBV_ACCESS_REMOTE_ATOMIC)?;
                names::atomic(wr, from);
                Ok(())
            }
        }
    }

    fn take_message(&mut self, peer: u32, wr: &sys::ibv_send_wr, from: u64, bytes: u32) -> Result<(), u32> {
        let receive = self.pairs.get_mut(&peer).and_then(|peer| peer.receives.pop_front());
        let (id, to) = receive.ok_or(sys::IBV_WC_RNR_RETRY_EXC_ERR)?;
        if bytes > to.map_or(0, |to| to.length) {
            self.received(peer, id, sys::IBV_WC_LOC_LEN_ERR, (0, 0, None));
            return self.refuse(peer, sys::IBV_EVENT_QP_FATAL, sys::IBV_WC_REM_INV_REQ_ERR);
        }
        if self.check_local(peer, to).is_err() {
            self.received(peer, id, sys::IBV_WC_LOC_PROT_ERR, (0, 0, None));
            return self.refuse(peer, sys::IBV_EVENT_QP_FATAL, sys::IBV_WC_REM_OP_ERR);
        }
        names::copy(from, to.map_or(0, |to| to.addr), bytes);
        let imm = (wr.opcode == sys::IBV_WR_SEND_WITH_IMM).then(|| names::imm(wr));
        self.received(peer, id, sys::IBV_WC_SUCCESS, (sys::IBV_WC_RECV, bytes, imm));
        Ok(())
    }

    /// Checks that local memory is registered in the queue pair's domain.
    fn check_local(&self, qp: u32, local: Option<sys::ibv_sge>) -> Result<(), u32> {
        let Some(sge) = local else { return Ok(()) };
        let pd = self.pairs[&qp].pd;
        let fits = self
            .regions
            .get(&sge.lkey)
            .is_some_and(|mr| mr.pd == pd && sge.addr >= mr.at && sge.addr + u64::from(sge.length) <= mr.at + mr.bytes);
        if fits { Ok(()) } else { Err(sys::IBV_WC_LOC_PROT_ERR) }
    }

    fn check_remote(&mut self, peer: u32, (place, key): (u64, u32), bytes: u32, right: u32) -> Result<(), u32> {
        let own = &self.pairs[&peer];
        let allowed = self.regions.get(&key).is_some_and(|mr| {
            let inside = place >= mr.at && place + u64::from(bytes) <= mr.at + mr.bytes;
            mr.pd == own.pd && inside && mr.access & right != 0 && own.attributes.qp_access_flags & right != 0
        });
        if bytes == 0 || allowed {
            return Ok(());
        }
        self.refuse(peer, sys::IBV_EVENT_QP_ACCESS_ERR, sys::IBV_WC_REM_ACCESS_ERR)
    }

    /// Describes the memory that a key of a peer refers to, for the log.
    pub(crate) fn place(&self, place: u64, key: u32) -> String {
        match self.regions.get(&key) {
            Some(mr) => format!("p{} mr {}+{}", owner(key), short(key), place.wrapping_sub(mr.at)),
            None => "an unknown key".to_owned(),
        }
    }

    /// Describes local memory, for the log.
    pub(crate) fn local(&self, sge: Option<sys::ibv_sge>) -> String {
        let Some(sge) = sge else { return "nothing".to_owned() };
        match self.regions.get(&sge.lkey) {
            Some(mr) => format!("{} bytes of mr {}+{}", sge.length, short(sge.lkey), sge.addr - mr.at),
            None => format!("{} bytes", sge.length),
        }
    }
}

pub(crate) fn ring(fd: i32) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: the descriptor is an open eventfd of this device, and the call reads 8 bytes.
    assert_eq!(unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) }, 8);
}

pub(crate) fn silence(fd: i32) {
    let mut count = [0; 8];
    // SAFETY: the descriptor is an open eventfd of this device, and the buffer has room for 8 bytes.
    assert_eq!(unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) }, 8);
}
