//! Tests of connections on fabrics.

mod bed;
mod cancel;
mod efa;
mod hosted;
mod in_place;
mod liar;
mod ofi;
mod roce;
mod shm;
mod sim;
mod surface;
mod unheard;
