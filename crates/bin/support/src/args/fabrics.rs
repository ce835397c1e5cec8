//! The fabrics among which commands choose that make their own configuration.

use clap::ValueEnum;

/// What a demonstration runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DemoFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with a loopback address of its own
    Roce,
    /// The RDMA device of this host, all processes at its address (`stentor doctor` says which)
    Verbs,
    /// A provider of libfabric, each process with a loopback address of its own
    Ofi,
}

/// What a bench runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LoopbackFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with a loopback address of its own
    Roce,
}

/// What two processes talk over by a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChannelFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with an address of its own
    Roce,
    /// A provider of libfabric
    Ofi,
}
