//! Connections on fabrics.

mod bed;
mod shm;
mod sim;
mod surface;
