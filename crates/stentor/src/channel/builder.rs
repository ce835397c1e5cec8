//! The builder of one end of a channel.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor_channel::{Config, EndpointConfig, Scheme};
use stentor_fabric::WaitMode;

use super::core::Core;
use super::error::Problem;
use super::place::{Meeting, Wishes};
use super::{Channel, ChannelError};
use crate::Cluster;
use crate::config::FabricKind;
use crate::runtime::StartError;

/// Default time for which an end waits for the other one.
const PATIENCE: Duration = Duration::from_secs(20);
/// Default maximum size of a message, in bytes.
const MESSAGE_BYTES: u64 = 16 << 20;
/// Maximum sizes of a piece of a message, in bytes: the first on fabrics with tags, the second on other fabrics.
const PIECE_BYTES: [u32; 2] = [512 << 10, 64 << 10];

/// A builder of one end of a channel. [`Channel::listen`], [`Channel::connect`] and [`Cluster::channel`] create one.
///
/// Both ends need the same fabric, `message_bytes` and key. On shared memory they also need the same directory.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it opens or starts"]
pub struct ChannelBuilder {
    meeting: Meeting,
    wishes: Wishes,
    wait: WaitMode,
    patience: Duration,
    message_bytes: u64,
}

impl ChannelBuilder {
    pub(super) fn at(place: &str, listens: bool) -> Self {
        let directory = stentor_host::default_directory();
        ChannelBuilder::new(Meeting::Place { place: place.to_owned(), listens }, FabricKind::Shm, directory)
    }

    pub(crate) fn in_cluster(cluster: Cluster, me: &str, peer: &str) -> Self {
        let (fabric, directory) = (cluster.runtime().config().fabric(), cluster.sockets().to_owned());
        let meeting = Meeting::Cluster { cluster, me: me.to_owned(), peer: peer.to_owned() };
        ChannelBuilder::new(meeting, fabric, directory)
    }

    fn new(meeting: Meeting, fabric: FabricKind, directory: PathBuf) -> Self {
        let wishes = Wishes { fabric, directory, bind: None, key: None, providers: Vec::new() };
        ChannelBuilder { meeting, wishes, wait: WaitMode::ADAPTIVE, patience: PATIENCE, message_bytes: MESSAGE_BYTES }
    }

    /// Sets the fabric: `shm`, `roce` or `ofi`. The default is shared memory for an end at a place, and the cluster's
    /// fabric for an end in a cluster.
    pub fn fabric(mut self, fabric: FabricKind) -> Self {
        self.wishes.fabric = fabric;
        self
    }

    /// Sets the directory in which the ends meet on shared memory. The default is that of the cluster, or
    /// `$XDG_RUNTIME_DIR/stentor`, or `/tmp/stentor-UID`.
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        self.wishes.directory = stentor_host::absolute(path.as_ref());
        self
    }

    /// Sets the IP address of this end, on fabrics between hosts only. An end that listens at a place ignores it: the
    /// place is its address.
    pub fn bind(mut self, address: IpAddr) -> Self {
        self.wishes.bind = Some(address);
        self
    }

    /// Sets the location of the key, for fabrics between hosts: `env:NAME` or `file:PATH`. By default, an end in a
    /// cluster uses the cluster's key. An end at a place needs no key if both ends are at loopback addresses.
    pub fn key(mut self, place: &str) -> Self {
        self.wishes.key = Some(place.to_owned());
        self
    }

    /// Sets the providers of libfabric to try, in order, such as `tcp;ofi_rxm`. For the fabric `ofi` only. By default,
    /// the configuration decides, or the best provider is used.
    pub fn providers<P: Into<String>>(mut self, names: impl IntoIterator<Item = P>) -> Self {
        self.wishes.providers = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how the channel waits. The default is [`WaitMode::ADAPTIVE`]. Futures also follow the mode: until they
    /// sleep, each poll spins or yields, and asks the executor for another poll.
    pub fn wait(self, mode: WaitMode) -> Self {
        ChannelBuilder { wait: mode, ..self }
    }

    /// Sets for how long [`open`](ChannelBuilder::open) waits for the other end. The default is 20 s.
    pub fn patience(self, patience: Duration) -> Self {
        ChannelBuilder { patience, ..self }
    }

    /// Sets the maximum size of a message in bytes, up to 1 GiB. The default is 16 MiB. No memory is reserved for it.
    pub fn message_bytes(self, most: u64) -> Self {
        ChannelBuilder { message_bytes: most, ..self }
    }

    /// Opens this end, and waits for the other one.
    ///
    /// # Errors
    /// Returns why the channel is not opened, with the remedy. The kind is
    /// [`PeerAbsent`](super::ChannelErrorKind::PeerAbsent) if the other end is not open in time.
    pub fn open(self) -> Result<Channel, ChannelError> {
        let patience = self.patience;
        let mut channel = self.start()?;
        channel.ready_timeout(patience)?;
        Ok(channel)
    }

    /// Opens this end without waiting for the other one. [`Channel::ready`] waits for it. Messages that are sent before
    /// the other end is open are queued while there is room. If a killed process still holds the place or the port,
    /// this function waits for up to 5 s until it is free.
    ///
    /// # Errors
    /// Returns why this end is not opened, with the remedy.
    pub fn start(self) -> Result<Channel, ChannelError> {
        let place = self.meeting.describe();
        self.make(&place).map_err(|problem| ChannelError::new(&place, problem))
    }

    fn make(&self, place: &str) -> Result<Channel, Problem> {
        let ChannelBuilder { meeting, wishes, wait, .. } = self;
        if matches!(wishes.fabric, FabricKind::Verbs | FabricKind::Sim) {
            let what = format!("there are no channels on fabric `{}`", wishes.fabric);
            let remedy = "use `shm`, `roce` or `ofi`, which has providers for RDMA devices";
            return Err(Problem::Impossible { what, remedy });
        }
        let spot = meeting.spot(wishes)?;
        let names = spot.names.clone();
        match wishes.fabric {
            #[cfg(feature = "roce")]
            FabricKind::Roce => Channel::new(Core::new(spot.roce()?, self.config(false), names, *wait)?.into(), place),
            #[cfg(feature = "ofi")]
            FabricKind::Ofi => {
                let cluster = if let Meeting::Cluster { cluster, .. } = meeting { Some(cluster) } else { None };
                let fabric = spot.ofi(cluster, &wishes.providers)?;
                let tagged = stentor_fabric::Fabric::capabilities(&fabric).tagged;
                Channel::new(Core::new(fabric, self.config(tagged), names, *wait)?.into(), place)
            }
            #[cfg(feature = "shm")]
            FabricKind::Shm => Channel::new(Core::new(spot.shm()?, self.config(false), names, *wait)?.into(), place),
            fabric => Err(Problem::Start(StartError::NotBuiltIn(fabric))),
        }
    }

    fn config(&self, tagged: bool) -> EndpointConfig {
        let (scheme, piece_bytes) =
            if tagged { (Scheme::Eager, PIECE_BYTES[0]) } else { (Scheme::Counted, PIECE_BYTES[1]) };
        let channel = Config { message_bytes: self.message_bytes, piece_bytes, ..Config::with(scheme) };
        EndpointConfig { connections: 1, ..EndpointConfig::new(channel) }
    }
}
