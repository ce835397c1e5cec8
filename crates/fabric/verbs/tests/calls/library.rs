//! Implements the functions of libibverbs and of a provider. Most functions log their calls.
//!
//! Polls that find nothing are not logged, because their number depends on timing.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::device::{Bell, Device, Mr, Qp, Queue, owner, short, silence};
use super::{names, sys};
use crate::calls::log::say;

/// Name of the device in libibverbs and in the sysfs tree.
pub(crate) const NAME: &str = "fake0";
const DEPTH: i32 = 1024;
const EAGAIN: i32 = libc::EAGAIN;

static DEVICE: Mutex<Option<Device>> = Mutex::new(None);

/// Runs a function with the device, which the first call creates.
pub(crate) fn with<T>(run: impl FnOnce(&mut Device) -> T) -> T {
    let mut device: MutexGuard<'_, Option<Device>> = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    run(device.get_or_insert_default())
}

/// Returns all functions that are looked up by name, with their addresses.
pub(crate) fn functions() -> Vec<(&'static str, *const c_void)> {
    macro_rules! table {
        ($($name:ident)+) => { vec![$((stringify!($name), $name as *const c_void)),+] };
    }
    table! {
        ibv_get_device_list ibv_free_device_list ibv_get_device_name ibv_open_device ibv_close_device
        ibv_get_async_event ibv_ack_async_event ibv_query_device ibv_query_port ibv_alloc_pd ibv_dealloc_pd
        ibv_reg_mr ibv_dereg_mr ibv_create_comp_channel ibv_destroy_comp_channel ibv_create_cq ibv_destroy_cq
        ibv_get_cq_event ibv_ack_cq_events ibv_create_qp ibv_modify_qp ibv_query_qp ibv_destroy_qp
        ibv_event_type_str ibv_query_qp_data_in_order
    }
}

fn fail(errno: i32) {
    // SAFETY: the call returns a pointer to this thread's errno, which is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn bell() -> Bell {
    // SAFETY: the arguments are only numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    Bell { fd, ..Bell::default() }
}

fn hang(device: &mut Device, object: usize) {
    let bell = device.bells.remove(&object).expect("the object has a bell");
    // SAFETY: the function `bell` opened the descriptor, and nothing uses it any more.
    unsafe { libc::close(bell.fd) };
}

/// Allocates an object at a fixed address.
fn keep<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Frees an object that [`keep`] allocated.
fn free<T>(object: *mut T) {
    // SAFETY: `keep` returned the pointer, and it is freed once, because the fabric destroys each object once.
    drop(unsafe { Box::from_raw(object) });
}

/// Returns a zeroed structure of the headers.
fn zeroed<T>() -> T {
    // SAFETY: the structures consist of numbers, pointers and optional functions, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    say(with(|device| device.opener), "  get_device_list");
    let mut one: sys::ibv_device = zeroed();
    for (to, from) in one.name.iter_mut().zip(NAME.bytes()) {
        *to = from as c_char;
    }
    // SAFETY: the fabric passes a pointer to a number that it owns.
    unsafe { *count = 1 };
    keep([keep(one), ptr::null_mut()]).cast()
}

extern "C" fn ibv_free_device_list(list: *mut *mut sys::ibv_device) {
    say(with(|device| device.opener), "  free_device_list");
    // SAFETY: the list has one element, from the call above.
    free(unsafe { *list });
    free(list.cast::<[*mut sys::ibv_device; 2]>());
}

extern "C" fn ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char {
    // SAFETY: the device is in a list that is not freed.
    unsafe { (*device).name.as_ptr() }
}

extern "C" fn ibv_open_device(_: *mut sys::ibv_device) -> *mut sys::ibv_context {
    with(|device| {
        let process = device.opener;
        say(process, format!("  open_device {NAME}"));
        let bell = bell();
        let mut context: sys::ibv_context = zeroed();
        context.async_fd = bell.fd;
        context.ops.poll_cq = Some(poll_cq);
        context.ops.req_notify_cq = Some(req_notify_cq);
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
        let context = keep(context);
        device.contexts.insert(context.addr(), process);
        device.bells.insert(context.addr(), bell);
        context
    })
}

extern "C" fn ibv_close_device(context: *mut sys::ibv_context) -> c_int {
    with(|device| {
        let process = device.contexts.remove(&context.addr()).expect("the device is open");
        say(process, "  close_device");
        hang(device, context.addr());
        free(context);
    });
    0
}

extern "C" fn ibv_get_async_event(context: *mut sys::ibv_context, event: *mut sys::ibv_async_event) -> c_int {
    with(|device| {
        let process = device.contexts[&context.addr()];
        let bell = device.bells.get_mut(&context.addr()).expect("the device is open");
        let Some((what, about)) = bell.waiting.pop_front() else {
            fail(EAGAIN);
            return -1;
        };
        if bell.waiting.is_empty() {
            silence(bell.fd);
        }
        say(process, format!("  get_async_event: {what}"));
        let mut told = sys::ibv_async_event { event_type: what, ..Default::default() };
        if what == sys::IBV_EVENT_PORT_ERR || what == sys::IBV_EVENT_PORT_ACTIVE {
            told.element.port_num = about as c_int;
        } else {
            told.element.qp = ptr::with_exposed_provenance_mut(about as usize);
        }
        // SAFETY: the fabric passes a pointer to an event that it owns.
        unsafe { *event = told };
        0
    })
}

extern "C" fn ibv_ack_async_event(_: *mut sys::ibv_async_event) {}

extern "C" fn ibv_query_device(context: *mut sys::ibv_context, attributes: *mut sys::ibv_device_attr) -> c_int {
    with(|device| {
        let process = device.contexts[&context.addr()];
        say(process, "  query_device");
        let told = sys::ibv_device_attr {
            max_qp: 64,
            max_qp_wr: DEPTH,
            max_cq: 16,
            max_cqe: 1 << 12,
            max_mr: 256,
            max_mr_size: 1 << 30,
            max_pd: 16,
            max_qp_rd_atom: 8,
            max_qp_init_rd_atom: 4,
            atomic_cap: sys::IBV_ATOMIC_HCA,
            ..Default::default()
        };
        // SAFETY: the fabric passes a pointer to attributes that it owns.
        unsafe { *attributes = told };
        device.fault(process, "query_device").unwrap_or(0)
    })
}

extern "C" fn ibv_query_port(context: *mut sys::ibv_context, port: u8, attributes: *mut c_void) -> c_int {
    with(|device| {
        let process = device.contexts[&context.addr()];
        say(process, format!("  query_port {port}"));
        let state = if device.port_down { sys::IBV_PORT_DOWN } else { sys::IBV_PORT_ACTIVE };
        let told = sys::ibv_port_attr {
            state,
            active_mtu: sys::IBV_MTU_1024,
            gid_tbl_len: 2,
            max_msg_sz: 1 << 20,
            ..Default::default()
        };
        // SAFETY: the fabric passes a pointer to attributes of the current size that it owns. Only callers with older
        // headers pass shorter attributes.
        unsafe { *attributes.cast() = told };
        device.fault(process, "query_port").unwrap_or(0)
    })
}

extern "C" fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    with(|device| {
        let process = device.contexts[&context.addr()];
        let number = device.count(process, "pd");
        say(process, format!("  alloc_pd: pd {number}"));
        let pd = keep(sys::ibv_pd { context, handle: number });
        device.domains.insert(pd.addr(), (process, number));
        pd
    })
}

extern "C" fn ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    with(|device| {
        let (process, number) = device.domains.remove(&pd.addr()).expect("a domain");
        say(process, format!("  dealloc_pd {number}"));
        free(pd);
    });
    0
}

extern "C" fn ibv_reg_mr(pd: *mut sys::ibv_pd, at: *mut c_void, bytes: usize, access: c_int) -> *mut sys::ibv_mr {
    with(|device| {
        let (process, domain) = device.domains[&pd.addr()];
        let place = at.expose_provenance() as u64;
        let memory = device.memory(process, place);
        let rights = names::access(access.cast_unsigned());
        let what = format!("  reg_mr pd {domain}, {bytes} bytes of memory {memory}, {rights}");
        if let Some(errno) = device.fault(process, "reg_mr") {
            say(process, format!("{what}: fails"));
            fail(errno);
            return ptr::null_mut();
        }
        let key = device.key(process);
        say(process, format!("{what}: mr {}", short(key)));
        let (pd_at, access) = (pd.addr(), access.cast_unsigned());
        device.regions.insert(key, Mr { pd: pd_at, at: place, bytes: bytes as u64, access, memory });
        keep(sys::ibv_mr { pd, addr: at, length: bytes, lkey: key, rkey: key, ..Default::default() })
    })
}

extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    with(|device| {
        // SAFETY: the registration is not deregistered yet.
        let key = unsafe { (*mr).lkey };
        let process = owner(key);
        if let Some(errno) = device.fault(process, "dereg_mr") {
            return errno;
        }
        let gone = device.forget(key).expect("a registration");
        say(process, format!("  dereg_mr {} of memory {}", short(key), gone.memory));
        free(mr);
        0
    })
}

extern "C" fn ibv_create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel {
    with(|device| {
        say(device.contexts[&context.addr()], "  create_comp_channel");
        let bell = bell();
        let channel = keep(sys::ibv_comp_channel { context, fd: bell.fd, refcnt: 0 });
        device.bells.insert(channel.addr(), bell);
        channel
    })
}

extern "C" fn ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    with(|device| {
        // SAFETY: the channel is not destroyed yet.
        let context = unsafe { (*channel).context };
        say(device.contexts[&context.addr()], "  destroy_comp_channel");
        hang(device, channel.addr());
        free(channel);
    });
    0
}

extern "C" fn ibv_create_cq(
    context: *mut sys::ibv_context,
    entries: c_int,
    _: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    vector: c_int,
) -> *mut sys::ibv_cq {
    with(|device| {
        let process = device.contexts[&context.addr()];
        let number = device.count(process, "cq");
        let tells = if channel.is_null() { "" } else { " with a channel" };
        say(process, format!("  create_cq {entries} entries{tells}, vector {vector}: cq {number}"));
        let mut cq: sys::ibv_cq = zeroed();
        (cq.context, cq.channel, cq.cqe) = (context, channel, entries);
        let cq = keep(cq);
        let channel = channel.addr();
        let queue = Queue { process, number, channel, entries: Default::default(), armed: false };
        device.queues.insert(cq.expose_provenance(), queue);
        cq
    })
}

extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    with(|device| {
        let Queue { process, number, .. } = device.queues.remove(&cq.addr()).expect("a queue");
        say(process, format!("  destroy_cq {number}"));
        free(cq);
    });
    0
}

extern "C" fn ibv_get_cq_event(
    channel: *mut sys::ibv_comp_channel,
    cq: *mut *mut sys::ibv_cq,
    own: *mut *mut c_void,
) -> c_int {
    with(|device| {
        let bell = device.bells.get_mut(&channel.addr()).expect("a channel");
        let Some((_, queue)) = bell.waiting.pop_front() else {
            fail(EAGAIN);
            return -1;
        };
        if bell.waiting.is_empty() {
            silence(bell.fd);
        }
        let Queue { process, number, .. } = &device.queues[&(queue as usize)];
        say(*process, format!("  get_cq_event: cq {number}"));
        // SAFETY: the fabric passes pointers to two pointers that it owns.
        unsafe {
            *cq = ptr::with_exposed_provenance_mut(queue as usize);
            *own = ptr::null_mut();
        }
        0
    })
}

extern "C" fn ibv_ack_cq_events(cq: *mut sys::ibv_cq, events: c_uint) {
    with(|device| {
        let Queue { process, number, .. } = &device.queues[&cq.addr()];
        say(*process, format!("  ack_cq_events cq {number}, {events}"));
    });
}

extern "C" fn ibv_create_qp(pd: *mut sys::ibv_pd, init: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp {
    with(|device| {
        let (process, domain) = device.domains[&pd.addr()];
        // SAFETY: the fabric passes a pointer to its own attributes, which nothing else accesses during the call.
        let init = unsafe { &mut *init };
        let queues = [init.send_cq.addr(), init.recv_cq.addr()];
        let [send, recv] = queues.map(|queue| device.queues[&queue].number);
        let cap = &init.cap;
        let what = format!(
            "  create_qp type {} pd {domain}, cq {send} {recv}, {} sends of {}, {} receives of {}, {} inline, sq_sig_all {}",
            init.qp_type,
            cap.max_send_wr,
            cap.max_send_sge,
            cap.max_recv_wr,
            cap.max_recv_sge,
            cap.max_inline_data,
            init.sq_sig_all
        );
        let too_much = (cap.max_inline_data > super::device::INLINE_BYTES).then_some(libc::EINVAL);
        if let Some(errno) = too_much.or_else(|| device.fault(process, "create_qp")) {
            say(process, format!("{what}: fails"));
            fail(errno);
            return ptr::null_mut();
        }
        let number = device.qp_number(process);
        say(process, format!("{what}: qp {}", short(number)));
        let mut qp: sys::ibv_qp = zeroed();
        // SAFETY: the domain is not deallocated yet.
        qp.context = unsafe { (*pd).context };
        (qp.pd, qp.qp_num) = (pd, number);
        let qp = keep(qp);
        let own = Qp {
            raw: qp.expose_provenance(),
            pd: pd.addr(),
            queues,
            state: sys::IBV_QPS_RESET,
            reliable: init.qp_type == sys::IBV_QPT_RC,
            attributes: sys::ibv_qp_attr::default(),
            receives: Default::default(),
        };
        device.pairs.insert(number, own);
        qp
    })
}

fn number(qp: *mut sys::ibv_qp) -> u32 {
    // SAFETY: the queue pair is not destroyed yet.
    unsafe { (*qp).qp_num }
}

extern "C" fn ibv_modify_qp(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_qp_attr, mask: c_int) -> c_int {
    with(|device| {
        let number = number(qp);
        // SAFETY: the fabric passes a pointer to attributes that it owns.
        let (attr, mask) = (unsafe { &*attr }, mask.cast_unsigned());
        say(owner(number), format!("  modify_qp {}: {}", short(number), names::attributes(attr, mask)));
        if let Some(errno) = device.fault(owner(number), "modify_qp") {
            return errno;
        }
        let own = device.pairs.get_mut(&number).expect("the queue pair exists");
        names::merge(&mut own.attributes, attr, mask);
        own.state = attr.qp_state;
        if attr.qp_state == sys::IBV_QPS_ERR {
            device.break_pair(number);
        }
        0
    })
}

extern "C" fn ibv_query_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    mask: c_int,
    _: *mut sys::ibv_qp_init_attr,
) -> c_int {
    with(|device| {
        let number = number(qp);
        let state = device.pairs[&number].state;
        say(owner(number), format!("  query_qp {}, mask {mask}: {}", short(number), names::state(state)));
        // SAFETY: the fabric passes a pointer to attributes that it owns.
        unsafe { (*attr).qp_state = state };
        0
    })
}

extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    with(|device| {
        let number = number(qp);
        say(owner(number), format!("  destroy_qp {}", short(number)));
        device.pairs.remove(&number);
        free(qp);
    });
    0
}

extern "C" fn ibv_event_type_str(_: c_uint) -> *const c_char {
    c"an event".as_ptr()
}

extern "C" fn ibv_query_qp_data_in_order(qp: *mut sys::ibv_qp, opcode: c_uint, flags: u32) -> c_int {
    let number = number(qp);
    let what = format!("  query_qp_data_in_order {}, {}, flags {flags}", short(number), names::opcode(opcode));
    say(owner(number), what);
    1
}

unsafe extern "C" fn poll_cq(cq: *mut sys::ibv_cq, most: c_int, entries: *mut sys::ibv_wc) -> c_int {
    with(|device| {
        let Queue { process, number, .. } = device.queues[&cq.addr()];
        if let Some(errno) = device.fault(process, "poll_cq") {
            return -errno;
        }
        let queue = device.queues.get_mut(&cq.addr()).expect("a queue");
        let count = queue.entries.len().min(most as usize);
        for (at, entry) in queue.entries.drain(..count).enumerate() {
            let what = format!("qp {} status {} bytes {}", short(entry.qp_num), entry.status, entry.byte_len);
            say(process, format!("  poll_cq {number}, room {most}: {what}"));
            // SAFETY: the buffer has room for `most` entries.
            unsafe { *entries.add(at) = entry };
        }
        count as c_int
    })
}

unsafe extern "C" fn req_notify_cq(cq: *mut sys::ibv_cq, solicited: c_int) -> c_int {
    with(|device| {
        let queue = device.queues.get_mut(&cq.addr()).expect("a queue");
        say(queue.process, format!("  req_notify_cq {}, solicited only {solicited}", queue.number));
        queue.armed = true;
    });
    0
}

unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    _: *mut *mut sys::ibv_send_wr,
) -> c_int {
    with(|device| {
        let number = number(qp);
        // SAFETY: the fabric passes a pointer to a request that it owns and does not change during the call.
        let wr = unsafe { &*wr };
        assert!(wr.next.is_null(), "one request at a time");
        let flags = [(sys::IBV_SEND_SIGNALED, "signaled"), (sys::IBV_SEND_INLINE, "inline")];
        let flags = names::bits(wr.send_flags, &flags);
        let what = names::opcode(wr.opcode);
        let from = device.local(names::element(wr.sg_list, wr.num_sge));
        let (place, key) = names::remote(wr);
        let to = match wr.opcode {
            sys::IBV_WR_SEND => String::new(),
            sys::IBV_WR_SEND_WITH_IMM => format!(", imm {}", u32::from_be(names::imm(wr))),
            sys::IBV_WR_RDMA_WRITE_WITH_IMM => {
                format!(", {}, imm {}", device.place(place, key), u32::from_be(names::imm(wr)))
            }
            sys::IBV_WR_ATOMIC_CMP_AND_SWP | sys::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                format!(", {}, operands {:?}", device.place(place, key), names::operands(wr))
            }
            _ => format!(", {}", device.place(place, key)),
        };
        say(owner(number), format!("  post_send {} {what} {flags}: {from}{to}", short(number)));
        if let Some(errno) = device.fault(owner(number), "post_send") {
            return errno;
        }
        device.send(number, wr);
        0
    })
}

unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_recv_wr,
    _: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    with(|device| {
        let number = number(qp);
        // SAFETY: the fabric passes a pointer to a receive that it owns and does not change during the call.
        let wr = unsafe { &*wr };
        assert!(wr.next.is_null(), "one receive at a time");
        let to = names::element(wr.sg_list, wr.num_sge);
        say(owner(number), format!("  post_recv {}: {}", short(number), device.local(to)));
        if let Some(errno) = device.fault(owner(number), "post_recv") {
            return errno;
        }
        device.pairs.get_mut(&number).expect("the queue pair exists").receives.push_back((wr.wr_id, to));
        0
    })
}
