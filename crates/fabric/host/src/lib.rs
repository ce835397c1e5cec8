//! The processes of one host: their sockets, a directory of running processes, and a lock so that each runs only once.
//!
//! - [`Seat`] is a process's socket in a private directory, with the lock on its id. If the socket is removed, the seat
//!   creates it again.
//! - [`StandingSeat`] is a seat with a thread that maintains it. Processes that communicate over a network have one so
//!   that operators on this host find them.
//! - [`Running`] finds a process of a cluster by its name, even if it was started with another directory and addresses.
//! - A janitor is a small process that removes the socket of a killed process: [`become_janitor_by`].
//! - [`interface_of`] and [`mtu_of`] return properties of network interfaces.
//! - [`memfd`] and [`socket`] are the primitives of these and of the shared-memory fabric.
//!
//! Directories have mode 0700, and both ends of a socket see each other's user id ([`Credentials`]).
#![deny(unsafe_code)]

mod about;
mod config;
mod credentials;
mod directory;
mod ending;
mod interface;
mod janitor;
mod lock;
pub mod memfd;
mod place;
mod roll;
mod seat;
pub mod socket;

pub use about::{About, Source};
pub use config::{MAX_NAME, SeatConfig, StartError, absolute, default_directory, meeting_directories, system};
pub use credentials::{Credentials, Named};
pub use directory::{all_beside, entries, is_socket_of, sockets_of};
pub use ending::is_ending;
pub use interface::{interface_of, mtu_of};
pub use janitor::{become_janitor_by, clean_up};
pub use place::StandingSeat;
pub use roll::Running;
pub use seat::{Beside, Remade, Seat};
