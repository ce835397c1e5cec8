//! Queue pairs on the endpoint; their lives are the bootstrap's.

use std::time::Instant;

use stentor_fabric::{ConnectError, ProcessId, QpConfig, QpId, QpState, Service};

use super::net::fresh_number;
use super::regions::domain;
use super::{DEPTH_LIMIT, RoceFabric};
use crate::endpoint::State;

/// Whether queues are not too deep.
pub(super) fn check_depths(config: QpConfig) -> Result<(), ConnectError> {
    for (what, asked) in [("send queue", config.send_depth), ("receive queue", config.recv_depth)] {
        if asked > DEPTH_LIMIT {
            return Err(ConnectError::TooDeep { what, asked, limit: DEPTH_LIMIT });
        }
    }
    Ok(())
}

impl RoceFabric {
    pub(super) fn make_qp(
        &mut self,
        peer: ProcessId,
        service: Service,
        config: QpConfig,
    ) -> Result<QpId, ConnectError> {
        if peer.index() >= self.bootstrap.processes() {
            return Err(ConnectError::UnknownProcess(peer));
        }
        check_depths(config)?;
        self.bootstrap.connect(&mut self.net, (peer, service), config, |net, qp| {
            let made = std::iter::repeat_with(|| net.endpoint.create(fresh_number(), domain(peer), config));
            let reason = "no free queue pair number".to_owned();
            let made = made.take(1000).flatten().next().ok_or(ConnectError::System { peer, reason })?;
            debug_assert_eq!(made, qp);
            Ok(())
        })
    }

    pub(super) fn reset_qp(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.bootstrap.reset(&mut self.net, qp)
    }

    /// One round of the control plane.
    pub(super) fn pump_control(&mut self) {
        self.last_pump = Instant::now();
        self.bootstrap.pump(&mut self.net);
        if let Err(error) = self.watch() {
            self.net.failure.get_or_insert(error.to_string());
        }
    }

    /// The state as posts see it: a queue pair may have broken a moment ago.
    pub(super) fn state_of(&self, qp: QpId) -> Option<QpState> {
        let known = self.bootstrap.state(qp)?;
        let broken = self.net.endpoint.state(qp) == Some(State::Error);
        Some(if broken { QpState::Error } else { known })
    }
}
