//! The RDMA device that a command uses.

use std::net::IpAddr;
use std::path::Path;

use stentor_fabric_verbs::Verbs;
use stentor_fabric_verbs::device::{self, Choice, Wanted};

/// Returns the address of the device that the fabric `verbs` would choose.
///
/// # Errors
/// Returns the reason if there is no such device.
pub fn rdma_address() -> Result<IpAddr, String> {
    rdma_choice().map(|choice| choice.gid.address())
}

/// Returns the device, port and GID that the fabric `verbs` would choose on this host.
///
/// # Errors
/// Returns the reason if there is no such device.
pub fn rdma_choice() -> Result<Choice, String> {
    Verbs::load().map_err(|error| error.to_string())?;
    let root = Path::new(device::ROOT);
    device::choose(&device::devices(root), &Wanted::here(root, None)).map_err(|error| error.to_string())
}
