//! Names of the arguments of verbs, as in the headers, and functions that access their fields.

use super::sys;

/// Returns the names of the bits that are set.
pub(crate) fn bits(value: u32, names: &[(u32, &str)]) -> String {
    let mut all: Vec<_> =
        names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    let rest = value & !names.iter().fold(0, |known, (bit, _)| known | bit);
    all.extend((rest != 0).then(|| format!("{rest:#x}")));
    if all.is_empty() { "none".to_owned() } else { all.join("|") }
}

pub(crate) fn access(flags: u32) -> String {
    bits(
        flags,
        &[
            (sys::IBV_ACCESS_LOCAL_WRITE, "local_write"),
            (sys::IBV_ACCESS_REMOTE_READ, "remote_read"),
            (sys::IBV_ACCESS_REMOTE_WRITE, "remote_write"),
            (sys::IBV_ACCESS_REMOTE_ATOMIC, "remote_atomic"),
        ],
    )
}

pub(crate) fn state(state: u32) -> &'static str {
    ["reset", "init", "rtr", "rts", "sqd", "sqe", "err"][state as usize]
}

pub(crate) fn opcode(opcode: u32) -> &'static str {
    ["write", "write_imm", "send", "send_imm", "read", "cmp_swp", "fetch_add"][opcode as usize]
}

/// Returns the completion opcode of a request's opcode.
pub(crate) fn completed(opcode: u32) -> u32 {
    match opcode {
        sys::IBV_WR_RDMA_WRITE | sys::IBV_WR_RDMA_WRITE_WITH_IMM => sys::IBV_WC_RDMA_WRITE,
        sys::IBV_WR_RDMA_READ => sys::IBV_WC_RDMA_READ,
        sys::IBV_WR_ATOMIC_CMP_AND_SWP => sys::IBV_WC_COMP_SWAP,
        sys::IBV_WR_ATOMIC_FETCH_AND_ADD => sys::IBV_WC_FETCH_ADD,
        _ => sys::IBV_WC_SEND,
    }
}

/// Describes the attributes of a queue pair that the mask selects. Omits initial packet sequence numbers, because they
/// are random.
pub(crate) fn attributes(attr: &sys::ibv_qp_attr, mask: u32) -> String {
    let mut all = Vec::new();
    let mut rest = mask;
    let mut one = |bit: u32, text: String| {
        if rest & bit != 0 {
            all.push(text);
            rest &= !bit;
        }
    };
    one(sys::IBV_QP_STATE, format!("to {}", state(attr.qp_state)));
    one(sys::IBV_QP_PKEY_INDEX, format!("pkey_index {}", attr.pkey_index));
    one(sys::IBV_QP_PORT, format!("port {}", attr.port_num));
    one(sys::IBV_QP_ACCESS_FLAGS, format!("access {}", access(attr.qp_access_flags)));
    let (ah, grh) = (&attr.ah_attr, &attr.ah_attr.grh);
    // SAFETY: both fields of the union have 16 bytes.
    let gid = std::net::Ipv6Addr::from(unsafe { grh.dgid.raw });
    let (lid, level, hops) = (ah.dlid, ah.sl, grh.hop_limit);
    let path = format!(
        "path to {gid} lid {lid} from gid {} port {} sl {level} hops {hops} class {} global {}",
        grh.sgid_index, ah.port_num, grh.traffic_class, ah.is_global
    );
    one(sys::IBV_QP_AV, path);
    one(sys::IBV_QP_PATH_MTU, format!("mtu {}", attr.path_mtu));
    let peer = attr.dest_qp_num;
    one(sys::IBV_QP_DEST_QPN, format!("dest {}.{}", peer >> 16, peer & 0xffff));
    one(sys::IBV_QP_RQ_PSN, "rq_psn".to_owned());
    one(sys::IBV_QP_MAX_DEST_RD_ATOMIC, format!("max_dest_rd_atomic {}", attr.max_dest_rd_atomic));
    one(sys::IBV_QP_MIN_RNR_TIMER, format!("min_rnr_timer {}", attr.min_rnr_timer));
    one(sys::IBV_QP_SQ_PSN, "sq_psn".to_owned());
    one(sys::IBV_QP_TIMEOUT, format!("timeout {}", attr.timeout));
    one(sys::IBV_QP_RETRY_CNT, format!("retry_cnt {}", attr.retry_cnt));
    one(sys::IBV_QP_RNR_RETRY, format!("rnr_retry {}", attr.rnr_retry));
    one(sys::IBV_QP_MAX_QP_RD_ATOMIC, format!("max_rd_atomic {}", attr.max_rd_atomic));
    assert_eq!(rest, 0, "unexpected attributes");
    all.join(", ")
}

/// Copies those attributes that the mask selects and the device uses.
pub(crate) fn merge(own: &mut sys::ibv_qp_attr, attr: &sys::ibv_qp_attr, mask: u32) {
    if mask & sys::IBV_QP_ACCESS_FLAGS != 0 {
        own.qp_access_flags = attr.qp_access_flags;
    }
    if mask & sys::IBV_QP_DEST_QPN != 0 {
        own.dest_qp_num = attr.dest_qp_num;
    }
    if mask & sys::IBV_QP_RQ_PSN != 0 {
        own.rq_psn = attr.rq_psn;
    }
    if mask & sys::IBV_QP_SQ_PSN != 0 {
        own.sq_psn = attr.sq_psn;
    }
}

/// Returns the only element of a list, if there is one.
pub(crate) fn element(list: *const sys::ibv_sge, count: i32) -> Option<sys::ibv_sge> {
    assert!(count <= 1, "the device supports one element per list");
    // SAFETY: the caller of the verb passes a list of `count` elements.
    (count == 1).then(|| unsafe { *list })
}

/// Returns the remote address and key of a request.
pub(crate) fn remote(wr: &sys::ibv_send_wr) -> (u64, u32) {
    match wr.opcode {
        sys::IBV_WR_SEND | sys::IBV_WR_SEND_WITH_IMM => (0, 0),
        sys::IBV_WR_ATOMIC_CMP_AND_SWP | sys::IBV_WR_ATOMIC_FETCH_AND_ADD => {
            // SAFETY: atomic operations use these fields.
            let of = unsafe { wr.wr.atomic };
            (of.remote_addr, of.rkey)
        }
        _ => {
            // SAFETY: all other operations use these fields.
            let of = unsafe { wr.wr.rdma };
            (of.remote_addr, of.rkey)
        }
    }
}

/// Returns the immediate in network byte order.
pub(crate) fn imm(wr: &sys::ibv_send_wr) -> u32 {
    // SAFETY: both fields of the union are 32-bit numbers.
    unsafe { wr.__bindgen_anon_1.imm_data }
}

/// Returns the operands of an atomic operation.
pub(crate) fn operands(wr: &sys::ibv_send_wr) -> (u64, u64) {
    // SAFETY: the caller has checked that the operation is atomic.
    let of = unsafe { wr.wr.atomic };
    (of.compare_add, of.swap)
}

/// Copies memory of one process to memory of the other.
pub(crate) fn copy(from: u64, to: u64, bytes: u32) {
    if bytes > 0 {
        // SAFETY: each range is inline data of the caller, or was checked against registrations, whose memory is
        // allocated. Only this thread accesses it.
        unsafe {
            std::ptr::copy(
                std::ptr::with_exposed_provenance::<u8>(from as usize),
                std::ptr::with_exposed_provenance_mut::<u8>(to as usize),
                bytes as usize,
            );
        }
    }
}

/// Executes an atomic operation and stores the old value in `old`.
pub(crate) fn atomic(wr: &sys::ibv_send_wr, old: u64) {
    let ((place, _), (first, second)) = (remote(wr), operands(wr));
    let word = std::ptr::with_exposed_provenance_mut::<u64>(place as usize);
    // SAFETY: the address was checked against registrations. It is aligned, as the fabric requires of all requests, and
    // only this thread accesses the memory.
    let was = unsafe { word.read() };
    let is = match wr.opcode {
        sys::IBV_WR_ATOMIC_FETCH_AND_ADD => was.wrapping_add(first),
        _ if was == first => second,
        _ => was,
    };
    // SAFETY: as above, for the target and the memory of the old value.
    unsafe {
        word.write(is);
        std::ptr::with_exposed_provenance_mut::<u64>(old as usize).write(was);
    }
}
