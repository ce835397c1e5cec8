//! The processes of one host: where their sockets are, who runs, and that each runs once.
//!
//! - [`Seat`] is a process's socket in a private directory, and the lock on its id. What is removed from under it is made anew.
//! - [`StandingSeat`] is a seat that looks after itself, for processes that meet over a network, so that operators on this host find
//!   them.
//! - [`Running`] finds the processes of a cluster, whatever directory and addresses they were told.
//! - A janitor is a tiny process that removes the socket of one that was killed: [`become_janitor_by`].
//! - [`interface_of`] and [`mtu_of`] tell about network interfaces.
//! - [`memfd`] and [`socket`] are what these and the shared-memory fabric are made of.
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
