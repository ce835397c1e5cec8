//! Diagnosis of a failed transition. Verbs only report that an attribute is invalid; this module tries to find out
//! which one.

use super::State;
use crate::context::{Limits, PortAttributes};
use crate::{Errno, sys};

/// The attribute at fault, with a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Diagnosis {
    /// Name of the attribute in the headers.
    pub attribute: &'static str,
    /// Value of the attribute.
    pub value: String,
    /// Remedy for the user.
    pub remedy: String,
}

fn diagnose(attribute: &'static str, value: &impl ToString, remedy: impl Into<String>) -> Option<Diagnosis> {
    Some(Diagnosis { attribute, value: value.to_string(), remedy: remedy.into() })
}

/// Facts for the diagnosis in addition to the attributes.
#[derive(Debug)]
pub(super) struct Known<'a> {
    /// Current state of the queue pair.
    pub from: State,
    /// Requested state.
    pub to: State,
    /// `true` if the queue pair is reliable.
    pub reliable: bool,
    /// Port that the attributes name; `None` if it cannot be queried.
    pub port: Option<&'a PortAttributes>,
    /// Limits of the device; `None` if it does not report them.
    pub limits: Option<&'a Limits>,
}

/// Checks the attributes before the device is called. Returns the first invalid attribute.
pub(super) fn before(attr: &sys::ibv_qp_attr, known: &Known<'_>) -> Option<Diagnosis> {
    let needed = match known.to {
        State::Init => Some(State::Reset),
        State::Rtr => Some(State::Init),
        State::Rts => Some(State::Rtr),
        _ => None,
    };
    if let Some(needed) = needed.filter(|needed| *needed != known.from) {
        let remedy = format!(
            "{} can be entered only from {needed}; bring the queue pair to RESET and then to {needed} first",
            known.to
        );
        return diagnose("qp_state", &known.from, remedy);
    }
    match known.to {
        State::Init if known.port.is_none() => diagnose("port_num", &attr.port_num, "name a port of the device"),
        State::Rtr => to_receive(attr, known),
        State::Rts if known.reliable => to_send(attr, known),
        _ => None,
    }
}

fn to_receive(attr: &sys::ibv_qp_attr, known: &Known<'_>) -> Option<Diagnosis> {
    let Some(port) = known.port else {
        return diagnose("ah_attr.port_num", &attr.ah_attr.port_num, "name a port of the device");
    };
    if !port.active {
        return diagnose(
            "ah_attr.port_num",
            &attr.ah_attr.port_num,
            "the port is not active: connect the cable, or set its interface up",
        );
    }
    if let Some(mtu) = port.mtu.filter(|mtu| attr.path_mtu > u32::from(*mtu as u8)) {
        let remedy = format!("the port's MTU is {}: configure that, or raise the interface's MTU", mtu.bytes());
        return diagnose("path_mtu", &(128 << attr.path_mtu), remedy);
    }
    if attr.dest_qp_num >> 24 != 0 {
        return diagnose(
            "dest_qp_num",
            &attr.dest_qp_num,
            "numbers of queue pairs have 24 bits: the peer sent an invalid number",
        );
    }
    if !known.reliable {
        return None;
    }
    if attr.min_rnr_timer > 31 {
        return diagnose("min_rnr_timer", &attr.min_rnr_timer, "configure 0 to 31");
    }
    let most = known.limits?.reads_answered;
    let too_many = attr.max_dest_rd_atomic > most;
    too_many.then(|| {
        diagnose("max_dest_rd_atomic", &attr.max_dest_rd_atomic, format!("the device supports at most {most}"))
    })?
}

fn to_send(attr: &sys::ibv_qp_attr, known: &Known<'_>) -> Option<Diagnosis> {
    for (name, value, most) in
        [("timeout", attr.timeout, 31), ("retry_cnt", attr.retry_cnt, 7), ("rnr_retry", attr.rnr_retry, 7)]
    {
        if value > most {
            return diagnose(name, &value, format!("configure at most {most}"));
        }
    }
    let most = known.limits?.reads_asked;
    let too_many = attr.max_rd_atomic > most;
    too_many.then(|| diagnose("max_rd_atomic", &attr.max_rd_atomic, format!("the device supports at most {most}")))?
}

/// Diagnoses an error of the device. `gid` is `true` if the GID entry of this end is set.
pub(super) fn after(attr: &sys::ibv_qp_attr, known: &Known<'_>, errno: Errno, gid: bool) -> Option<Diagnosis> {
    const UNREACHABLE: [i32; 4] = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ETIMEDOUT, libc::EADDRNOTAVAIL];
    let index = attr.ah_attr.grh.sgid_index;
    match known.to {
        State::Rtr if attr.ah_attr.is_global != 0 && !gid => diagnose(
            "ah_attr.grh.sgid_index",
            &index,
            "this entry of the port's GID table is empty: `stentor doctor` shows the entries that are set",
        ),
        State::Rtr if UNREACHABLE.contains(&errno.0) => {
            // SAFETY: all fields of the union consist of 16 bytes, for which every value is valid.
            let bytes = unsafe { attr.ah_attr.grh.dgid.raw };
            let peer = std::net::Ipv6Addr::from(bytes);
            let shown = peer.to_ipv4_mapped().map_or(peer.to_string(), |v4| v4.to_string());
            diagnose(
                "ah_attr.grh.dgid",
                &shown,
                "this address cannot be reached from this GID: check the kind (IPv4 or IPv6), the network and the route",
            )
        }
        _ => None,
    }
}

/// Returns the remedy for an error for which no attribute is known to be at fault.
pub(super) fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NO_MEMORY => "raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service)",
        Errno::NOT_PERMITTED | Errno::ACCESS => "allow this user to use the device",
        Errno::NO_DEVICE => "the device was removed: load its driver again, and restart this process",
        _ => "no attribute is known to be wrong: look for the driver's reason in the kernel's log (dmesg)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Mtu;

    fn port() -> PortAttributes {
        PortAttributes { active: true, mtu: Some(Mtu::B1024), gids: 8, lid: 0, message_bytes: 1 << 20 }
    }

    fn limits() -> Limits {
        Limits {
            queue_pairs: 1,
            queue_depth: 1,
            completion_queues: 1,
            completions: 1,
            regions: 1,
            region_bytes: 1,
            domains: 1,
            reads_answered: 16,
            reads_asked: 8,
            atomics: true,
        }
    }

    /// Returns the attribute that the diagnosis names after `set` has changed the attributes.
    fn guilty(
        from: State,
        to: State,
        set: impl Fn(&mut sys::ibv_qp_attr, &mut PortAttributes),
    ) -> Option<&'static str> {
        let (mut attr, mut port, limits) = (sys::ibv_qp_attr { path_mtu: 3, ..Default::default() }, port(), limits());
        set(&mut attr, &mut port);
        let known = Known { from, to, reliable: true, port: Some(&port), limits: Some(&limits) };
        before(&attr, &known).map(|diagnose| diagnose.attribute)
    }

    #[test]
    fn too_large_attribute_is_named() {
        let rtr = |set: fn(&mut sys::ibv_qp_attr, &mut PortAttributes)| guilty(State::Init, State::Rtr, set);
        assert_eq!(rtr(|_, _| ()), None);
        assert_eq!(rtr(|attr, _| attr.path_mtu = 4), Some("path_mtu"));
        assert_eq!(rtr(|_, port| port.active = false), Some("ah_attr.port_num"));
        assert_eq!(rtr(|attr, _| attr.max_dest_rd_atomic = 17), Some("max_dest_rd_atomic"));
        assert_eq!(rtr(|attr, _| attr.min_rnr_timer = 32), Some("min_rnr_timer"));
        assert_eq!(rtr(|attr, _| attr.dest_qp_num = 1 << 24), Some("dest_qp_num"));
        let rts = |set: fn(&mut sys::ibv_qp_attr, &mut PortAttributes)| guilty(State::Rtr, State::Rts, set);
        assert_eq!(rts(|_, _| ()), None);
        assert_eq!(rts(|attr, _| attr.timeout = 32), Some("timeout"));
        assert_eq!(rts(|attr, _| attr.retry_cnt = 8), Some("retry_cnt"));
        assert_eq!(rts(|attr, _| attr.rnr_retry = 8), Some("rnr_retry"));
        assert_eq!(rts(|attr, _| attr.max_rd_atomic = 9), Some("max_rd_atomic"));
    }

    #[test]
    fn impossible_transition_is_named() {
        for (from, to) in [(State::Init, State::Init), (State::Reset, State::Rtr), (State::Error, State::Rts)] {
            assert_eq!(guilty(from, to, |_, _| ()), Some("qp_state"));
        }
        assert_eq!(guilty(State::Error, State::Reset, |_, _| ()), None);
        let known = Known { from: State::Reset, to: State::Init, reliable: true, port: None, limits: None };
        assert_eq!(before(&sys::ibv_qp_attr::default(), &known).unwrap().attribute, "port_num");
    }

    #[test]
    fn refusal_is_explained_by_gid_and_errno() {
        let port = port();
        let known = Known { from: State::Init, to: State::Rtr, reliable: true, port: Some(&port), limits: None };
        let mut attr = sys::ibv_qp_attr::default();
        attr.ah_attr.is_global = 1;
        let named = |errno, gid| after(&attr, &known, errno, gid).map(|diagnose| diagnose.attribute);
        assert_eq!(named(Errno::INVALID, false), Some("ah_attr.grh.sgid_index"));
        assert_eq!(named(Errno(libc::ENETUNREACH), true), Some("ah_attr.grh.dgid"));
        assert_eq!(named(Errno::INVALID, true), None, "no attribute is blamed without a reason");
        assert_eq!(after(&attr, &known, Errno::NO_MEMORY, true), None);
        assert!(remedy(Errno::NO_MEMORY).contains("ulimit -l"));
    }
}
