//! State transitions of queue pairs: RESET → INIT → RTR → RTS, and any state → RESET or ERR.

use std::path::Path;

use stentor_fabric::{Access, QpKind};

use super::QueuePair;
use super::attributes::{Endpoint, Own, State, Tuning};
use super::diagnose::{self, Known};
use crate::context::PortNumber;
use crate::{Errno, device, domain, sys};

/// Reason why a queue pair did not change its state.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{device}: queue pair {qp_number} cannot change from {from} to {to}{}{}; {remedy}", said(*errno), at(attribute.as_ref()))]
pub struct TransitionError {
    /// Name of the device.
    pub device: String,
    /// Number of the queue pair.
    pub qp_number: u32,
    /// Current state; [`State::Error`] if it cannot be queried.
    pub from: State,
    /// Requested state.
    pub to: State,
    /// The device's error; `None` if the device was not called because an attribute is invalid.
    pub errno: Option<Errno>,
    /// Attribute at fault, by its name in rdma-core's headers, with its value; `None` if it is unknown.
    pub attribute: Option<(&'static str, String)>,
    /// Remedy for the user.
    pub remedy: String,
}

fn said(errno: Option<Errno>) -> String {
    errno.map_or(String::new(), |errno| format!(" ({errno})"))
}

fn at(attribute: Option<&(&'static str, String)>) -> String {
    attribute.map_or(String::new(), |(name, value)| format!(", because of {name} = {value}"))
}

impl QueuePair {
    /// RESET → INIT: sets the port, and the access that peers have to regions whose keys they have; `None` means no
    /// access.
    ///
    /// # Errors
    /// See [`TransitionError`].
    pub fn init(&self, port: PortNumber, peers: Option<Access>) -> Result<(), TransitionError> {
        let mut attr = sys::ibv_qp_attr { port_num: port.0, ..Default::default() };
        // Unreliable connections do not support READs and atomics, and some devices refuse an unreliable queue pair
        // that permits them.
        attr.qp_access_flags = match self.kind {
            QpKind::Reliable => domain::flags(peers),
            QpKind::Unreliable => domain::flags(peers) & sys::IBV_ACCESS_REMOTE_WRITE,
        };
        self.go(State::Init, port, attr, sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS)
    }

    /// INIT → RTR: sets the other end and the path to it. In RTR, the queue pair accepts packets of the other end.
    ///
    /// # Errors
    /// See [`TransitionError`].
    pub fn ready_to_receive(&self, own: Own, peer: &Endpoint, tuning: &Tuning) -> Result<(), TransitionError> {
        let mut attr = sys::ibv_qp_attr {
            path_mtu: u32::from(peer.mtu as u8),
            dest_qp_num: peer.qp_number,
            rq_psn: peer.psn & 0xff_ffff,
            max_dest_rd_atomic: tuning.reads_answered,
            min_rnr_timer: tuning.rnr_timer,
            ..Default::default()
        };
        attr.ah_attr.port_num = own.port.0;
        attr.ah_attr.dlid = peer.lid;
        attr.ah_attr.sl = tuning.service_level;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = sys::ibv_gid { raw: peer.gid.octets() };
        attr.ah_attr.grh.sgid_index = own.gid_index;
        attr.ah_attr.grh.hop_limit = tuning.hop_limit;
        attr.ah_attr.grh.traffic_class = tuning.traffic_class;
        let mut mask = sys::IBV_QP_AV | sys::IBV_QP_PATH_MTU | sys::IBV_QP_DEST_QPN | sys::IBV_QP_RQ_PSN;
        if self.kind == QpKind::Reliable {
            mask |= sys::IBV_QP_MAX_DEST_RD_ATOMIC | sys::IBV_QP_MIN_RNR_TIMER;
        }
        self.go(State::Rtr, own.port, attr, mask)
    }

    /// RTR → RTS: sets the sequence number of the first packet (24 bits), the timeouts and the retries.
    ///
    /// # Errors
    /// See [`TransitionError`].
    pub fn ready_to_send(&self, own: Own, psn: u32, tuning: &Tuning) -> Result<(), TransitionError> {
        let attr = sys::ibv_qp_attr {
            sq_psn: psn & 0xff_ffff,
            timeout: tuning.timeout,
            retry_cnt: tuning.retries,
            rnr_retry: tuning.rnr_retries,
            max_rd_atomic: tuning.reads_asked,
            ..Default::default()
        };
        let mut mask = sys::IBV_QP_SQ_PSN;
        if self.kind == QpKind::Reliable {
            mask |= sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT | sys::IBV_QP_RNR_RETRY | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        }
        self.go(State::Rts, own.port, attr, mask)
    }

    /// Any state → RESET: empties both queues. Posted requests never complete.
    ///
    /// # Errors
    /// See [`TransitionError`].
    pub fn reset(&self) -> Result<(), TransitionError> {
        self.go(State::Reset, PortNumber(0), sys::ibv_qp_attr::default(), 0)
    }

    /// Any state → ERR: flushes all posted requests.
    ///
    /// # Errors
    /// See [`TransitionError`].
    pub fn fail(&self) -> Result<(), TransitionError> {
        self.go(State::Error, PortNumber(0), sys::ibv_qp_attr::default(), 0)
    }

    /// Queries the state of the queue pair from the device.
    ///
    /// # Errors
    /// Returns the device's error.
    pub fn state(&self) -> Result<State, Errno> {
        let (mut attr, mut init) = (sys::ibv_qp_attr::default(), sys::ibv_qp_init_attr::default());
        let symbols = self.domain.context().symbols();
        let mask = sys::IBV_QP_STATE.cast_signed();
        // SAFETY: the queue pair is live; the call writes both structures.
        let returned = unsafe { symbols.ibv_query_qp(self.raw.raw(), &raw mut attr, mask, &raw mut init) };
        Errno::check(returned)?;
        State::from_raw(attr.qp_state).ok_or(Errno::INVALID)
    }

    fn go(
        &self,
        to: State,
        port: PortNumber,
        mut attr: sys::ibv_qp_attr,
        mask: sys::ibv_qp_attr_mask,
    ) -> Result<(), TransitionError> {
        let context = self.domain.context();
        let error = |from, errno, diagnose: Option<diagnose::Diagnosis>| TransitionError {
            device: context.name().to_owned(),
            qp_number: self.number(),
            from,
            to,
            errno,
            remedy: match &diagnose {
                Some(diagnose) => diagnose.remedy.clone(),
                None => diagnose::remedy(errno.unwrap_or(Errno::INVALID)).to_owned(),
            },
            attribute: diagnose.map(|diagnose| (diagnose.attribute, diagnose.value)),
        };
        let from = self.state().map_err(|errno| error(State::Error, Some(errno), None))?;
        let (port_attributes, limits) = (context.port(port).ok(), context.limits().ok());
        let reliable = self.kind == QpKind::Reliable;
        let known = Known { from, to, reliable, port: port_attributes.as_ref(), limits: limits.as_ref() };
        if let Some(diagnose) = diagnose::before(&attr, &known) {
            return Err(error(from, None, Some(diagnose)));
        }
        attr.qp_state = raw_state(to);
        let mask = (mask | sys::IBV_QP_STATE).cast_signed();
        // SAFETY: the queue pair is live. The call reads the attributes that the mask names, and all of them are set.
        let returned = unsafe { context.symbols().ibv_modify_qp(self.raw.raw(), &raw mut attr, mask) };
        Errno::check(returned).map_err(|errno| {
            let gid = has_gid(context.name(), port, attr.ah_attr.grh.sgid_index);
            error(from, Some(errno), diagnose::after(&attr, &known, errno, gid))
        })
    }
}

fn raw_state(state: State) -> sys::ibv_qp_state {
    match state {
        State::Reset => sys::IBV_QPS_RESET,
        State::Init => sys::IBV_QPS_INIT,
        State::Rtr => sys::IBV_QPS_RTR,
        State::Rts => sys::IBV_QPS_RTS,
        State::Drained => sys::IBV_QPS_SQD,
        State::SendError => sys::IBV_QPS_SQE,
        State::Error => sys::IBV_QPS_ERR,
    }
}

/// Returns whether an entry of a port's GID table is set.
fn has_gid(name: &str, port: PortNumber, index: u8) -> bool {
    let devices = device::devices(Path::new(device::ROOT));
    let port = devices.iter().filter(|device| device.name == name).flat_map(|d| &d.ports).find(|p| p.number == port.0);
    port.is_some_and(|port| port.gids.iter().any(|gid| gid.index == u32::from(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_transition_attribute_and_remedy_in_one_line() {
        let error = TransitionError {
            device: "rxe0".into(),
            qp_number: 17,
            from: State::Init,
            to: State::Rtr,
            errno: Some(Errno::INVALID),
            attribute: Some(("path_mtu", "4096".into())),
            remedy: "configure 1024".into(),
        };
        let text = "rxe0: queue pair 17 cannot change from INIT to RTR (Invalid argument (os error 22)), because of path_mtu = 4096; \
                    configure 1024";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn states_round_trip_through_verbs() {
        for raw in 0..7 {
            assert_eq!(raw_state(State::from_raw(raw).unwrap()), raw);
        }
        assert_eq!(State::from_raw(7), None);
    }
}
