//! The connection between a node and the builders of its embedded clients.

use std::sync::Arc;

use stentor_fabric::ProcessId;

use super::apply::Looks;
use super::clients::Turner;
use super::hosted::{Host, Requests};
use super::sleeper::Sleeper;
use crate::Cluster;
use crate::client::{ClientBuilder, Keeper, Seat};
use crate::runtime::BindConfig;
use crate::state_machine::StateMachine;

/// The parts of a node that an embedded client needs.
pub(super) struct Berth<S> {
    pub(super) cluster: Cluster,
    /// The start parameters of a client in the member's process.
    pub(super) bind: BindConfig,
    pub(super) member: ProcessId,
    pub(super) mailbox: Requests<S>,
    pub(super) looks: Looks<S>,
    pub(super) turner: Turner,
    pub(super) sleeper: Sleeper,
}

impl<S> Clone for Berth<S> {
    fn clone(&self) -> Self {
        let Berth { cluster, bind, member, mailbox, looks, turner, sleeper } = self;
        Berth {
            cluster: cluster.clone(),
            bind: bind.clone(),
            member: *member,
            mailbox: mailbox.clone(),
            looks: looks.clone(),
            turner: turner.clone(),
            sleeper: sleeper.clone(),
        }
    }
}

impl<S: StateMachine> Berth<S> {
    pub(super) fn builder(&self) -> ClientBuilder {
        let Berth { cluster, bind, member, mailbox, looks, turner, sleeper } = self.clone();
        let is_own_thread = move || turner.is_this_thread() || looks.is_own_thread();
        let rouse = sleeper.clone();
        let adopt = move |client| {
            mailbox.put(Box::new(move |host: &mut dyn Host<S>| host.adopt(client)));
            sleeper.wake();
        };
        let keeper = Keeper { is_own_thread: Arc::new(is_own_thread), wake: Arc::new(move || rouse.wake()) };
        let seat = Seat { bind, member, keeper, adopt: Arc::new(adopt) };
        ClientBuilder::embedded(cluster, seat)
    }
}
