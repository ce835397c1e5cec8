//! Processes of a configuration on RoCEv2.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_roce::driver::{Chances, source_address};
use stentor_fabric_roce::{RoceConfig, RoceFabric, SwitchConfig};
use stentor_multicast::{ClientId, Place};

use super::address::AddressError;
use super::cluster::{Plan, StartError};
use crate::config::{ClusterConfig, KeyError, MemberConfig, NebConfig};

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
    /// Whether the network's faults may be set while the process runs.
    pub faults: bool,
}

impl Plan {
    /// Starts a process on RoCEv2 in user space.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Roce`].
    pub fn roce(&self, me: ProcessId, seat: &RoceSeat) -> Result<RoceFabric, StartError> {
        let addresses = self.addresses(me, seat.bind)?;
        let most = self.config().memory().processes.iter().map(|process| process.bytes()).max().unwrap_or(0);
        let longest = self.limits().body_ring(self.topology()).max_payload() as u32;
        let switch = self.config().switch().cloned();
        let process = RoceConfig { switch, ..RoceConfig::new(self.config().cluster(), me, addresses) };
        seat.start(self.config(), most, longest, process)
    }

    /// The same for a process of the broadcast of `[neb]`, counted in its group.
    ///
    /// # Errors
    /// As [`roce`](Self::roce).
    pub fn neb_roce(&self, neb: &NebConfig, me: ProcessId, seat: &RoceSeat) -> Result<RoceFabric, StartError> {
        let addresses = self.neb_addresses(neb, me, seat.bind)?;
        let (most, longest) = (neb.config().memory_bytes(), neb.config().payload_bytes as u32);
        let name = format!("{}.neb", self.config().cluster());
        // Registers are written once: a process without its memory would split what others have agreed on.
        let switch = self.neb_switch();
        let process = RoceConfig { one_life: true, switch, ..RoceConfig::new(&name, me, addresses) };
        seat.start(self.config(), most, longest, process)
    }
}

impl Plan {
    /// Returns the address of a process, unless it is started at another one.
    ///
    /// # Errors
    /// [`AddressError`], if the configuration names one that means nothing here.
    pub fn address(&self, process: ProcessId) -> Result<IpAddr, AddressError> {
        let addresses = self.addresses(process, None)?;
        Ok(addresses[process.index()].expect("a process knows its own address").ip())
    }
}

/// The sets of a broadcast are numbered from here on: one switch serves both.
const NEB_SETS: u16 = 1 << 15;

impl Plan {
    /// The switch, as a broadcast uses it beside the multicast.
    pub(super) fn neb_switch(&self) -> Option<SwitchConfig> {
        let cluster = Some(self.config().cluster().to_owned());
        self.config().switch().map(|switch| SwitchConfig { cluster, first_set: NEB_SETS, ..switch.clone() })
    }

    /// Where all processes are; `bind` is this one's address, if it is not that of the configuration.
    pub(super) fn addresses(
        &self,
        me: ProcessId,
        bind: Option<IpAddr>,
    ) -> Result<Vec<Option<SocketAddr>>, AddressError> {
        let mut addresses = resolve_all(self.config().groups().iter().flat_map(|group| group.members()))?;
        let first = addresses[0].expect("members have addresses");
        addresses.resize(self.topology().processes(), None);
        let processes = addresses.len();
        let Some(own) = addresses.get_mut(me.index()) else {
            return Err(AddressError::NoProcess { process: me, processes });
        };
        match (self.topology().place(me), bind, &own) {
            (_, Some(bind), Some(known)) => *own = Some(SocketAddr::new(bind, known.port())),
            (_, Some(bind), None) => *own = Some(SocketAddr::new(bind, 0)),
            (Some(Place::Client(client)), None, None) => {
                *own = Some(SocketAddr::new(client_address(first, client)?, 0));
            }
            _ => {}
        }
        one_family(self.config(), me, &addresses)?;
        Ok(addresses)
    }

    /// The same for the processes of a broadcast.
    pub(super) fn neb_addresses(
        &self,
        neb: &NebConfig,
        me: ProcessId,
        bind: Option<IpAddr>,
    ) -> Result<Vec<Option<SocketAddr>>, AddressError> {
        let group = self.config().groups().get(neb.group());
        let mut addresses = resolve_all(group.into_iter().flat_map(|group| group.members()))?;
        let processes = addresses.len();
        let Some(own) = addresses.get_mut(me.index()).and_then(Option::as_mut) else {
            return Err(AddressError::NoProcess { process: me, processes });
        };
        own.set_ip(bind.unwrap_or(own.ip()));
        one_family(self.config(), me, &addresses)?;
        Ok(addresses)
    }
}

impl RoceSeat {
    /// Starts a process whose memory is `most` bytes large and whose messages are at most `longest`.
    fn start(
        &self,
        config: &ClusterConfig,
        most: u64,
        longest: u32,
        process: RoceConfig,
    ) -> Result<RoceFabric, StartError> {
        Ok(RoceFabric::start(RoceConfig {
            key: config.key().ok_or(KeyError::Unnamed)?.read(&self.directory)?,
            fingerprint: config.fingerprint(),
            // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
            max_bytes: 2 * most + (64 << 20),
            message_bytes: (longest + 4096).max(256 << 10),
            pcap: self.pcap.clone(),
            chances: self.chances,
            seed: self.seed.wrapping_add(u64::from(process.me.0)),
            faults: self.faults,
            ..process
        })?)
    }

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

fn resolve_all<'a>(
    members: impl IntoIterator<Item = &'a MemberConfig>,
) -> Result<Vec<Option<SocketAddr>>, AddressError> {
    members.into_iter().map(|member| resolve(member).map(Some)).collect()
}

/// Refuses a process that others wait for in vain: packets do not go from IPv4 to IPv6.
fn one_family(config: &ClusterConfig, me: ProcessId, addresses: &[Option<SocketAddr>]) -> Result<(), AddressError> {
    let Some(own) = addresses.get(me.index()).copied().flatten() else { return Ok(()) };
    let other = |address: &Option<SocketAddr>| address.is_some_and(|address| address.is_ipv4() != own.is_ipv4());
    let Some(n) = addresses.iter().position(other) else { return Ok(()) };
    let address = addresses[n].expect("it has one").ip();
    let mut members = config.groups().iter().flat_map(|group| group.members());
    let named = |member: &&MemberConfig| resolve(member).is_ok_and(|found| found.ip() == address);
    let process = members.find(named).map_or_else(|| format!("process {n}"), |member| member.id().to_owned());
    Err(AddressError::Family { process, address, own: own.ip() })
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
