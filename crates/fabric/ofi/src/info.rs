//! Descriptions of what providers offer, from `fi_getinfo`.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr::{self, NonNull};

use stentor_fabric_net::sysfs;

use crate::errno::Errno;
use crate::load::{Libfabric, Version};
use crate::provider_device::ProviderDevice;
use crate::sys::{self, bit};

/// Capabilities that an endpoint must have beyond sends and receives, which every endpoint supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// `true` if tagged sends and receives are needed.
    pub tagged: bool,
    /// `true` if one-sided reads and writes are needed.
    pub rma: bool,
    /// `true` if atomics on peers' memory are needed.
    pub atomics: bool,
    /// `true` if one-sided writes of one endpoint to one peer must take effect in posting order.
    pub ordered_writes: bool,
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.tagged, "tags"),
            (self.rma, "RDMA"),
            (self.atomics, "atomics"),
            (self.ordered_writes, "writes in order"),
        ];
        f.write_str(&listed(&names, "messages"))
    }
}

/// Joins the names whose flag is set. Returns `nothing` if no flag is set.
fn listed(names: &[(bool, &str)], nothing: &str) -> String {
    let names: Vec<_> = names.iter().filter_map(|(is, name)| is.then_some(*name)).collect();
    if names.is_empty() { nothing.to_owned() } else { names.join(", ") }
}

/// The provider's requirements for memory registration (`mr_mode`). Raw keys (`FI_MR_RAW`) are not offered, so no
/// provider requires them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryModes {
    /// `true` if local buffers must be registered, too (`FI_MR_LOCAL`).
    pub local: bool,
    /// `true` if peers address memory by virtual address, not by offset (`FI_MR_VIRT_ADDR`).
    pub virtual_addresses: bool,
    /// `true` if memory must already be allocated when it is registered (`FI_MR_ALLOCATED`). The memory of this crate
    /// always is.
    pub allocated: bool,
    /// `true` if the provider chooses the keys (`FI_MR_PROV_KEY`).
    pub provider_keys: bool,
    /// `true` if a registration belongs to one endpoint (`FI_MR_ENDPOINT`).
    pub endpoint: bool,
}

impl fmt::Display for MemoryModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.local, "local"),
            (self.virtual_addresses, "virtual addresses"),
            (self.allocated, "allocated"),
            (self.provider_keys, "provider's keys"),
            (self.endpoint, "endpoint"),
        ];
        f.write_str(&listed(&names, "none"))
    }
}

/// Orders that a provider guarantees between operations of one endpoint with one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Orders {
    /// `true` if messages match receives in the order in which they were sent.
    pub send_after_send: bool,
    /// Maximum length of writes that take effect in posting order, in bytes; 0 if the order is not guaranteed.
    pub write_after_write_bytes: u64,
    /// Maximum length of reads that see earlier writes, in bytes; 0 if the order is not guaranteed.
    pub read_after_write_bytes: u64,
}

/// Reason why libfabric returned no description.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InfoError {
    /// No provider offers the requested capabilities.
    #[error("no provider of libfabric offers {what} on this machine: `stentor doctor` shows the available providers")]
    Nobody {
        /// Requested provider and capabilities.
        what: String,
    },
    /// libfabric failed.
    #[error("libfabric cannot list its providers: {errno}")]
    Failed {
        /// Error code.
        errno: Errno,
    },
    /// The name cannot be that of a provider.
    #[error("{name:?} is not a valid name of a provider")]
    Name {
        /// Requested name.
        name: String,
    },
}

/// A description from libfabric of one provider with one of its devices.
pub struct Info {
    library: &'static Libfabric,
    raw: NonNull<sys::fi_info>,
    provider: String,
    domain: String,
    fabric: String,
    /// Reason for the choice, if this description was chosen.
    why: Option<String>,
}

// SAFETY: the description is private memory that does not change after its creation.
unsafe impl Send for Info {}
// SAFETY: as above; shared references only read it.
unsafe impl Sync for Info {}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info").field("provider", &self.provider).field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}", self.provider, self.provider_version(), self.domain)?;
        self.ip().map_or(Ok(()), |ip| write!(f, ", {ip}"))?;
        self.why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

impl Clone for Info {
    fn clone(&self) -> Self {
        // SAFETY: the description is live.
        let mut copy = unsafe { Info::of(self.library, self.raw.as_ptr()) };
        copy.why.clone_from(&self.why);
        copy
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: `fi_dupinfo` created it, and nothing refers to it any more.
        unsafe { self.library.symbols.fi_freeinfo(self.raw.as_ptr()) };
    }
}

/// Copies a string of libfabric. Returns an empty string for a null pointer.
///
/// # Safety
/// The pointer must be null or point to a terminated string.
unsafe fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

impl Info {
    /// Copies one description.
    ///
    /// # Safety
    /// The pointer must be a description from libfabric, or null for an empty description.
    unsafe fn of(library: &'static Libfabric, raw: *const sys::fi_info) -> Info {
        // SAFETY: guaranteed by the caller. The copy has all parts of the original except the pointer to the next list
        // entry.
        let raw = unsafe { library.symbols.fi_dupinfo(raw) };
        let raw = NonNull::new(raw)
            .unwrap_or_else(|| std::alloc::handle_alloc_error(std::alloc::Layout::new::<sys::fi_info>()));
        // SAFETY: a description from libfabric has all of these attributes.
        let (provider, domain, fabric) = unsafe {
            let (of, at) = ((*raw.as_ptr()).fabric_attr, (*raw.as_ptr()).domain_attr);
            (text((*of).prov_name), text((*at).name), text((*of).name))
        };
        Info { library, raw, provider, domain, fabric, why: None }
    }

    /// Lists the descriptions of providers with reliable datagrams in libfabric's order, best first.
    ///
    /// If `provider` is set, the list contains only that provider, possibly with a layer that libfabric adds
    /// (`udp;ofi_rxd` for `udp`). If `source` is set, endpoints bind that Internet address. Some providers check only
    /// when an endpoint is created whether a device has the address.
    ///
    /// # Errors
    /// See [`InfoError`].
    pub fn list(
        library: &'static Libfabric,
        provider: Option<&str>,
        source: Option<IpAddr>,
        needs: Needs,
    ) -> Result<Vec<Info>, InfoError> {
        let hints = Hints::new(library, provider, needs)?;
        let node = source.map(|ip| CString::new(ip.to_string()).unwrap_or_default());
        let flags = if node.is_some() { bit::SOURCE | bit::NUMERIC_HOST } else { 0 };
        let node = node.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let mut first = ptr::null_mut();
        // SAFETY: strings and hints are valid during the call, which allocates the list.
        let returned = unsafe {
            library.symbols.fi_getinfo(
                library.interface().raw(),
                node,
                ptr::null(),
                flags,
                hints.0.raw.as_ptr(),
                &raw mut first,
            )
        };
        let what = || format!("{} with {needs}", provider.unwrap_or("anything"));
        match Errno::check(returned) {
            Ok(()) => {}
            Err(Errno::NO_DATA) => return Err(InfoError::Nobody { what: what() }),
            Err(errno) => return Err(InfoError::Failed { errno }),
        }
        let (mut found, mut next) = (Vec::new(), first);
        while !next.is_null() {
            // SAFETY: `next` is a description in the list, which is not freed yet.
            found.push(unsafe { Info::of(library, next) });
            // SAFETY: as above.
            next = unsafe { (*next).next };
        }
        // SAFETY: `first` is the head of the list, which is not used again.
        unsafe { library.symbols.fi_freeinfo(first) };
        Ok(found)
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::fi_info {
        self.raw.as_ptr()
    }

    fn get(&self) -> &sys::fi_info {
        // SAFETY: the description is live and does not change.
        unsafe { self.raw.as_ref() }
    }

    fn domain_attributes(&self) -> &sys::fi_domain_attr {
        // SAFETY: every description has these attributes, which live as long as it does.
        unsafe { &*self.get().domain_attr }
    }

    fn endpoint_attributes(&self) -> &sys::fi_ep_attr {
        // SAFETY: every description has these attributes, which live as long as it does.
        unsafe { &*self.get().ep_attr }
    }

    fn sending(&self) -> &sys::fi_tx_attr {
        // SAFETY: every description has these attributes, which live as long as it does.
        unsafe { &*self.get().tx_attr }
    }

    fn receiving(&self) -> &sys::fi_rx_attr {
        // SAFETY: every description has these attributes, which live as long as it does.
        unsafe { &*self.get().rx_attr }
    }

    /// Returns the provider's name: `efa`, `tcp;ofi_rxm`, …
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Returns the provider's name for the device.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the provider's name for the network.
    #[must_use]
    pub fn fabric(&self) -> &str {
        &self.fabric
    }

    /// Sets the reason for the choice.
    pub(crate) fn because(mut self, why: String) -> Info {
        self.why = Some(why);
        self
    }

    /// Returns the reason for the choice, if this description was chosen.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Returns the kernel's name of the device and its address on the PCI bus, if the provider reports them.
    fn card(&self) -> (Option<String>, Option<String>) {
        // SAFETY: the pointer is null or a description of the NIC, which lives as long as this description.
        let Some(nic) = (unsafe { self.get().nic.as_ref() }) else { return (None, None) };
        // SAFETY: as above. The name is null or a terminated string.
        let name = unsafe { nic.device_attr.as_ref().map(|device| text(device.name)) };
        // SAFETY: as above.
        let bus = unsafe { nic.bus_attr.as_ref() }.filter(|bus| bus.bus_type == sys::FI_BUS_PCI);
        let bus = bus.map(|bus| {
            // SAFETY: the bus type selects this member of the union.
            let pci = unsafe { bus.attr.pci };
            format!("{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id, pci.device_id, pci.function_id)
        });
        (name.filter(|name| !name.is_empty()), bus)
    }

    /// Returns the device and its location.
    #[must_use]
    pub fn device(&self) -> ProviderDevice {
        let (name, bus) = self.card();
        let names: Vec<_> = name.as_deref().into_iter().chain([self.domain()]).collect();
        let node = sysfs::device_node(Path::new(sysfs::ROOT), bus.as_deref(), &names);
        // Devices with Internet addresses belong to a network. All other devices of a provider can reach each other.
        let network = self.has_ip().then(|| self.fabric.clone());
        ProviderDevice { provider: self.provider.clone(), name: self.domain.clone(), network, bus, node }
    }

    /// Returns the number of the protocol that the provider's endpoints use.
    pub(crate) fn protocol(&self) -> u32 {
        self.endpoint_attributes().protocol
    }

    /// Returns the provider's version.
    #[must_use]
    pub fn provider_version(&self) -> Version {
        // SAFETY: every description has these attributes.
        let raw = unsafe { (*self.get().fabric_attr).prov_version };
        Version { major: (raw >> 16) as u16, minor: raw as u16 }
    }

    /// Returns the capabilities beyond sends and receives.
    #[must_use]
    pub fn can(&self) -> Needs {
        let caps = self.get().caps;
        Needs {
            tagged: caps & bit::TAGGED != 0,
            rma: caps & bit::RMA != 0,
            atomics: caps & bit::ATOMIC != 0,
            ordered_writes: self.orders().write_after_write_bytes > 0,
        }
    }

    /// Returns the requirements for memory registration.
    #[must_use]
    pub fn memory_modes(&self) -> MemoryModes {
        let mode = self.domain_attributes().mr_mode;
        MemoryModes {
            local: mode & sys::FI_MR_LOCAL != 0,
            virtual_addresses: mode & sys::FI_MR_VIRT_ADDR != 0,
            allocated: mode & sys::FI_MR_ALLOCATED != 0,
            provider_keys: mode & sys::FI_MR_PROV_KEY != 0,
            endpoint: mode & sys::FI_MR_ENDPOINT != 0,
        }
    }

    /// Returns the guaranteed orders.
    #[must_use]
    pub fn orders(&self) -> Orders {
        // An order is guaranteed only if both the sending and the receiving side keep it.
        let kept = self.sending().msg_order & self.receiving().msg_order;
        let of = self.endpoint_attributes();
        let has = |bits: u64| kept & bits != 0;
        let (waw, raw) = (has(bit::ORDER_RMA_WAW | bit::ORDER_WAW), has(bit::ORDER_RMA_RAW));
        Orders {
            send_after_send: has(bit::ORDER_SAS),
            write_after_write_bytes: if waw { of.max_order_waw_size as u64 } else { 0 },
            read_after_write_bytes: if raw { of.max_order_raw_size as u64 } else { 0 },
        }
    }

    /// Returns the maximum length of a message, write or read, in bytes.
    #[must_use]
    pub fn message_bytes(&self) -> u64 {
        self.endpoint_attributes().max_msg_size as u64
    }

    /// Returns the maximum length of injected data, which is copied during posting, in bytes.
    #[must_use]
    pub fn inject_bytes(&self) -> usize {
        self.sending().inject_size
    }

    /// Returns the maximum number of outstanding operations of one endpoint.
    #[must_use]
    pub fn send_depth(&self) -> u32 {
        u32::try_from(self.sending().size).unwrap_or(u32::MAX)
    }

    /// Returns the maximum number of posted receives of one endpoint.
    #[must_use]
    pub fn recv_depth(&self) -> u32 {
        u32::try_from(self.receiving().size).unwrap_or(u32::MAX)
    }

    /// Returns the length of an immediate, in bytes.
    #[must_use]
    pub fn immediate_bytes(&self) -> usize {
        self.domain_attributes().cq_data_size
    }

    /// Returns whether peers' writes can be counted.
    pub(crate) fn counts_writes(&self) -> bool {
        self.get().caps & bit::RMA_EVENT != 0
    }

    /// Returns whether the provider's endpoints have Internet addresses.
    #[must_use]
    pub fn has_ip(&self) -> bool {
        let format = self.get().addr_format;
        [sys::FI_SOCKADDR, sys::FI_SOCKADDR_IN, sys::FI_SOCKADDR_IN6].contains(&format)
    }

    /// Returns the Internet address that an endpoint would bind, or `None` if endpoints have no such address.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        let info = self.get();
        if !self.has_ip() || info.src_addr.is_null() {
            return None;
        }
        // SAFETY: libfabric stores an address of `src_addrlen` bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) };
        ip_of(bytes)
    }
}

/// Returns whether a provider maps files in [`DIRECTORY`](crate::DIRECTORY).
#[must_use]
pub fn has_segments(provider: &str) -> bool {
    provider.split(';').any(|layer| layer == "shm" || layer == "sm2" || layer == "lnx")
}

/// Returns the address in a `sockaddr_in` or `sockaddr_in6`, or `None` if the bytes are neither.
fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    match family {
        libc::AF_INET => bytes.get(4..8)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        libc::AF_INET6 => bytes.get(8..24)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

/// Hints for `fi_getinfo`.
struct Hints(Info);

impl Hints {
    fn new(library: &'static Libfabric, provider: Option<&str>, needs: Needs) -> Result<Hints, InfoError> {
        let name = provider.map(|name| CString::new(name).map_err(|_| InfoError::Name { name: name.to_owned() }));
        let name = name.transpose()?;
        // SAFETY: a null pointer requests an empty description, which has all attributes.
        let hints = Hints(unsafe { Info::of(library, ptr::null()) });
        let raw = hints.0.raw.as_ptr();
        let wants = |is: bool, bits: u64| if is { bits } else { 0 };
        let caps = bit::MSG
            | wants(needs.tagged, bit::TAGGED)
            | wants(needs.rma, bit::RMA | bit::READ | bit::WRITE | bit::REMOTE_READ | bit::REMOTE_WRITE)
            | wants(needs.rma || needs.tagged, bit::SEND | bit::RECV)
            | wants(needs.atomics, bit::ATOMIC);
        let order = bit::ORDER_SAS | wants(needs.ordered_writes, bit::ORDER_WAW | bit::ORDER_RMA_WAW);
        // SAFETY: the description was just created, has all attributes and is not shared. `fi_freeinfo` frees the
        // string.
        unsafe {
            (*raw).caps = caps;
            (*raw).mode = bit::CONTEXT | bit::CONTEXT2;
            (*(*raw).ep_attr).type_ = sys::FI_EP_RDM;
            (*(*raw).domain_attr).threading = sys::FI_THREAD_SAFE;
            // `FI_MR_RAW` is left out, so providers whose keys do not fit into 64 bits are not offered.
            (*(*raw).domain_attr).mr_mode = sys::FI_MR_LOCAL
                | sys::FI_MR_VIRT_ADDR
                | sys::FI_MR_ALLOCATED
                | sys::FI_MR_PROV_KEY
                | sys::FI_MR_ENDPOINT;
            (*(*raw).domain_attr).resource_mgmt = sys::FI_RM_ENABLED;
            (*(*raw).tx_attr).msg_order = order;
            (*(*raw).rx_attr).msg_order = order;
            if let Some(name) = name {
                (*(*raw).fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        Ok(hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_parsed() {
        let mut four = vec![0; 16];
        four[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        four[4..8].copy_from_slice(&[127, 0, 0, 1]);
        assert_eq!(ip_of(&four), Some(Ipv4Addr::LOCALHOST.into()));
        let mut six = vec![0; 28];
        six[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        six[23] = 1;
        assert_eq!(ip_of(&six), Some(Ipv6Addr::LOCALHOST.into()));
        for cut in [&four[..7], &six[..20], &four[..1], &[]] {
            assert_eq!(ip_of(cut), None);
        }
    }

    #[test]
    fn shared_memory_is_detected_in_any_layer() {
        assert!(has_segments("shm") && has_segments("ofi_rxm;shm") && has_segments("sm2"));
        assert!(!has_segments("tcp;ofi_rxm") && !has_segments("efa"));
    }
}
