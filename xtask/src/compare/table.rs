//! All systems of a comparison, Stentor's first.

use super::measure::{channel, channel_in_place, pingpong, rows, stentor, ucx};
use super::system::{Program, System, Version, setting};
use crate::needs::Needs;

/// The programs that Stentor's measurements need.
const STENTOR: Needs = Needs {
    things: &["ip", "unshare"],
    sources: &["compare/stentor", "compare/hosts.sh", "xtask/src/compare/measure.rs"],
};
/// The programs and the library that corosync's nodes and their program in `compare` need.
const CPG: Needs = Needs {
    things: &["corosync", "libcpg.so.4", "ip", "unshare"],
    sources: &["compare/cpg", "compare/hosts.sh", "xtask/src/compare/measure.rs"],
};
/// The programs that the measurement of a NATS server needs.
const NATS: Needs = Needs {
    things: &["nats-server", "ip", "unshare"],
    sources: &["compare/nats", "compare/hosts.sh", "xtask/src/compare/measure.rs"],
};

/// The things that the measurement of an etcd cluster needs. The crate of etcd's client generates code with `protoc`
/// when it is built.
const ETCD: Needs = Needs {
    things: &["etcd", "protoc", "google/protobuf/descriptor.proto", "ip", "unshare"],
    sources: &["compare/etcd", "compare/hosts.sh", "xtask/src/compare/measure.rs"],
};

/// The programs that the measurement of iceoryx2 needs. The library iceoryx2 is a dependency of its program in
/// `compare`.
const ICEORYX2: Needs = Needs { things: &["ip", "unshare"], sources: &["compare/iceoryx2", "compare/hosts.sh"] };
/// The programs that the measurement with `fi_pingpong` needs.
const PINGPONG: Needs = Needs {
    things: &["fi_pingpong", "fi_info", "ip", "unshare"],
    sources: &["compare/fi_pingpong", "compare/hosts.sh"],
};
/// The programs that the measurement of MPI needs.
const MPI: Needs =
    Needs { things: &["mpicc", "mpirun", "gcc", "ip", "unshare"], sources: &["compare/mpi", "compare/hosts.sh"] };
/// The programs that the measurement of UCX needs.
const UCX: Needs =
    Needs { things: &["ucx_perftest", "ucx_info", "ip", "unshare"], sources: &["compare/ucx", "compare/hosts.sh"] };

/// The programs, headers and libraries that the measurement of Aeron needs. Aeron's sources come with the dependencies
/// of its program in `compare`, and need a newer CMake than some systems have.
const AERON: Needs = Needs {
    things: &["cmake", "g++", "libclang", "bsd/bsd.h", "uuid/uuid.h", "ip", "unshare"],
    sources: &["compare/aeron", "compare/hosts.sh", "xtask/src/compare/system.rs"],
};

/// Place with three hosts, which are network namespaces joined by a bridge and veth pairs.
const AT_1500: &str = "three hosts, MTU 1500";
const AT_9000: &str = "three hosts, MTU 9000";
pub(crate) const LOOPBACK: &str = "one host, loopback";
const MEMORY: &str = "one host, shared memory";
const PAIR_LOOPBACK: &str = "two processes, loopback";
const PAIR_MEMORY: &str = "two processes, shared memory";

/// The end of a latency with three processes.
const LAST_OF_THREE: &str = "the last of three members has delivered";
/// The end of a latency with two processes that exchange messages in round trips.
const HALF: &str = "half of the way to and fro is over";
const SPINS: &str = "spins, each process on a processor of its own";

/// All systems of a comparison.
pub(crate) const SYSTEMS: &[System] = &[
    System {
        name: "stentor",
        guarantee: "total order; a majority has the message",
        until: "the sender knows that a majority has delivered; on one host, the last member has delivered",
        wait: "spins, then sleeps (adaptive)",
        outstanding: 1024,
        settings: &[
            setting(AT_1500, "roce", 1500),
            setting(AT_9000, "roce", 9000),
            setting(LOOPBACK, "roce", 0),
            setting(MEMORY, "shm", 0),
        ],
        needs: &STENTOR,
        program: Program::Stentor,
        measure: stentor,
        version: Version::Own,
    },
    System {
        name: "stentor-channel",
        guarantee: "exactly once, in order, from one process to another",
        until: HALF,
        wait: SPINS,
        outstanding: 1,
        settings: &[setting(PAIR_LOOPBACK, "roce", 0), setting(PAIR_MEMORY, "shm", 0)],
        needs: &STENTOR,
        program: Program::Stentor,
        measure: channel,
        version: Version::Own,
    },
    System {
        name: "stentor-channel-in-place",
        guarantee: "exactly once, in order, from one process to another; sent from where it is, and read in place, every byte",
        until: HALF,
        wait: SPINS,
        outstanding: 1,
        settings: &[setting(PAIR_MEMORY, "shm", 0)],
        needs: &STENTOR,
        program: Program::Stentor,
        measure: channel_in_place,
        version: Version::Own,
    },
    System {
        name: "cpg",
        guarantee: "total order (agreed, not safe)",
        until: LAST_OF_THREE,
        wait: "sleeps, poll(2)",
        outstanding: 500,
        settings: &[
            setting(AT_1500, "udpu", 1500),
            setting(AT_1500, "knet", 1500),
            setting(AT_9000, "udpu", 9000),
            setting(AT_9000, "knet", 9000),
        ],
        needs: &CPG,
        program: Program::Other("compare-cpg"),
        measure: rows,
        version: Version::Says("corosync", &["-v"]),
    },
    System {
        name: "nats",
        guarantee: "at most once, from each publisher in its order, through one server; a slow subscriber is cut off",
        until: LAST_OF_THREE,
        wait: "sleeps, epoll(7) in the server, read(2) in subscribers",
        outstanding: 256,
        settings: &[setting(AT_1500, "core", 1500), setting(AT_9000, "core", 9000), setting(LOOPBACK, "core", 0)],
        needs: &NATS,
        program: Program::Other("compare-nats"),
        measure: rows,
        version: Version::Says("nats-server", &["--version"]),
    },
    System {
        name: "etcd",
        guarantee: "total order, linearizable; a majority has it in its log, which is in memory here",
        until: "the client knows that the leader has carried out the put",
        wait: "sleeps, epoll(7)",
        outstanding: 256,
        settings: &[setting(AT_1500, "put", 1500), setting(AT_9000, "put", 9000), setting(LOOPBACK, "put", 0)],
        needs: &ETCD,
        program: Program::Other("compare-etcd"),
        measure: rows,
        version: Version::Says("etcd", &["--version"]),
    },
    System {
        name: "iceoryx2",
        guarantee: "each subscriber gets what one publisher sent, in its order; no order between publishers; read in place",
        until: LAST_OF_THREE,
        wait: "spins and yields the processor",
        outstanding: 64,
        settings: &[setting(MEMORY, "ipc", 0)],
        needs: &ICEORYX2,
        program: Program::Other("compare-iceoryx2"),
        measure: rows,
        version: Version::Locked("compare/Cargo.lock", "iceoryx2"),
    },
    System {
        name: "iceoryx2-pair",
        guarantee: "a subscriber gets what one publisher sent, in its order; read in place, every byte",
        until: HALF,
        wait: SPINS,
        outstanding: 1,
        settings: &[setting(PAIR_MEMORY, "pair", 0)],
        needs: &ICEORYX2,
        program: Program::Other("compare-iceoryx2"),
        measure: rows,
        version: Version::Locked("compare/Cargo.lock", "iceoryx2"),
    },
    System {
        name: "fi_pingpong",
        guarantee: "reliable, from one process to another; in order",
        until: "half of the way to and fro is over, on average: it tells no median",
        wait: SPINS,
        outstanding: 1,
        settings: &[
            setting(PAIR_LOOPBACK, "tcp-msg", 0),
            setting(PAIR_LOOPBACK, "tcp-rdm", 0),
            setting(PAIR_MEMORY, "shm-rdm", 0),
        ],
        needs: &PINGPONG,
        program: Program::Packaged,
        measure: pingpong,
        version: Version::Says("fi_info", &["--version"]),
    },
    System {
        name: "mpi",
        guarantee: "reliable, from one root in its order; all processes take part in each call, and none may fail",
        until: "MPI_Bcast has returned in the last of three processes",
        wait: "spins and yields the processor",
        outstanding: 64,
        settings: &[setting(LOOPBACK, "tcp", 0), setting(MEMORY, "vader", 0)],
        needs: &MPI,
        program: Program::Other("compare-row"),
        measure: rows,
        version: Version::Says("mpirun", &["--version"]),
    },
    System {
        name: "ucx",
        guarantee: "reliable, from one process to another; tags are matched in order",
        until: HALF,
        wait: SPINS,
        outstanding: 32,
        settings: &[setting(PAIR_LOOPBACK, "tcp", 0), setting(PAIR_MEMORY, "posix", 0)],
        needs: &UCX,
        program: Program::Packaged,
        measure: ucx,
        version: Version::Says("ucx_info", &["-v"]),
    },
    System {
        name: "aeron",
        guarantee: "each subscription gets what one publication sent, in its order; no order between publications; read in place",
        until: LAST_OF_THREE,
        wait: "spins and yields the processor; the media driver is beside the way of messages",
        outstanding: 64,
        settings: &[setting(MEMORY, "ipc", 0)],
        needs: &AERON,
        program: Program::Apart("compare-aeron"),
        measure: rows,
        version: Version::Locked("compare/aeron/Cargo.lock", "rusteron-client"),
    },
    System {
        name: "aeron-pair",
        guarantee: "a subscription gets what one publication sent, in its order; read in place, or put together, every byte",
        until: HALF,
        wait: "spins, each process on a processor of its own; the media driver is beside the way of messages",
        outstanding: 1,
        settings: &[setting(PAIR_MEMORY, "pair", 0)],
        needs: &AERON,
        program: Program::Apart("compare-aeron"),
        measure: rows,
        version: Version::Locked("compare/aeron/Cargo.lock", "rusteron-client"),
    },
];
