//! Processes of a configuration on RoCEv2.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_roce::driver::{Chances, source_address};
use stentor_fabric_roce::{RoceConfig, RoceFabric};
use stentor_multicast::{ClientId, Place};
use thiserror::Error;

use super::cluster::{Plan, StartError};
use crate::config::{KeyError, MemberConfig};

/// What a process is told besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct RoceSeat {
    /// Directory of the configuration: a key's file may be relative to it.
    pub directory: PathBuf,
    /// This process's address; `None`: a member's is in the configuration, a client's is the one that this host reaches the
    /// first member from.
    pub bind: Option<IpAddr>,
    /// Where to write a capture of all packets.
    pub pcap: Option<PathBuf>,
    /// A bad network.
    pub chances: Chances,
    /// The seed of its badness.
    pub seed: u64,
}

/// Why nobody can be reached.
#[derive(Debug, Error)]
pub enum AddressError {
    /// A name that means nothing here.
    #[error("`{process}` at {address}: {source}")]
    Unknown {
        /// The process.
        process: String,
        /// Its address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A name without addresses.
    #[error("`{process}` at {address}: the name has no address")]
    None {
        /// The process.
        process: String,
        /// Its address.
        address: String,
    },
}

impl Plan {
    /// Starts a process on RoCEv2 in user space.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Roce`].
    pub fn roce(&self, me: ProcessId, seat: &RoceSeat) -> Result<RoceFabric, StartError> {
        let key = self.config().key().ok_or(KeyError::Unnamed)?.read(&seat.directory)?;
        let members = self.config().groups().iter().flat_map(|group| group.members());
        let mut addresses = members.map(|member| resolve(member).map(Some)).collect::<Result<Vec<_>, _>>()?;
        let first = addresses[0].expect("members have addresses");
        addresses.resize(self.topology().processes(), None);
        let own = &mut addresses[me.index()];
        match (self.topology().place(me), seat.bind, &own) {
            (_, Some(bind), Some(known)) => *own = Some(SocketAddr::new(bind, known.port())),
            (_, Some(bind), None) => *own = Some(SocketAddr::new(bind, 0)),
            (Some(Place::Client(client)), None, None) => {
                *own = Some(SocketAddr::new(client_address(first, client)?, 0));
            }
            _ => {}
        }
        let most = self.config().memory().processes.iter().map(|process| process.bytes()).max().unwrap_or(0);
        let longest = self.limits().body_ring(self.topology()).max_payload() as u32;
        Ok(RoceFabric::start(RoceConfig {
            key,
            fingerprint: self.config().fingerprint(),
            // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
            max_bytes: 2 * most + (64 << 20),
            message_bytes: (longest + 4096).max(256 << 10),
            pcap: seat.pcap.clone(),
            chances: seat.chances,
            seed: seat.seed.wrapping_add(u64::from(me.0)),
            ..RoceConfig::new(self.config().cluster(), me, addresses)
        })?)
    }
}

impl RoceSeat {
    /// A process whose configuration is in this file.
    #[must_use]
    pub fn beside(config: &Path) -> Self {
        RoceSeat { directory: config.parent().unwrap_or(Path::new("")).to_owned(), seed: 1, ..RoceSeat::default() }
    }
}

fn resolve(member: &MemberConfig) -> Result<SocketAddr, AddressError> {
    let (process, address) = (member.id().to_owned(), member.address().to_owned());
    match member.address().to_socket_addrs() {
        Ok(mut found) => found.next().ok_or(AddressError::None { process, address }),
        Err(source) => Err(AddressError::Unknown { process, address, source }),
    }
}

/// Where a client is that was not told.
fn client_address(member: SocketAddr, client: ClientId) -> Result<IpAddr, AddressError> {
    if let IpAddr::V4(ip) = member.ip()
        && ip.is_loopback()
    {
        // Beside the members, by its place, so that two clusters of one host do not meet.
        let [high, low] = (client.0 + 1).to_be_bytes();
        return Ok(Ipv4Addr::new(127, ip.octets()[1], 255 - high, low).into());
    }
    let unknown = |source| AddressError::Unknown { process: "a client".into(), address: member.to_string(), source };
    source_address(member).map_err(unknown)
}
