//! libfabric constants with the types that its functions take, in addition to the generated bindings.

pub(crate) use stentor_libfabric_sys::*;

/// Encodes a version, as the macro `FI_VERSION(major, minor)` of libfabric's headers does.
pub(crate) const fn version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// 64-bit flags: capabilities, modes, orders, and flags of operations and completions.
pub(crate) mod bit {
    use stentor_libfabric_sys as raw;

    macro_rules! bits {
        ($($name:ident = $raw:ident),+ $(,)?) => { $(pub(crate) const $name: u64 = raw::$raw as u64;)+ };
    }

    bits! {
        MSG = FI_MSG,
        RMA = FI_RMA,
        TAGGED = FI_TAGGED,
        ATOMIC = FI_ATOMIC,
        READ = FI_READ,
        WRITE = FI_WRITE,
        RECV = FI_RECV,
        SEND = FI_SEND,
        REMOTE_READ = FI_REMOTE_READ,
        REMOTE_WRITE = FI_REMOTE_WRITE,
        REMOTE_CQ_DATA = FI_REMOTE_CQ_DATA,
        COMPLETION = FI_COMPLETION,
        DELIVERY_COMPLETE = FI_DELIVERY_COMPLETE,
        SOURCE = FI_SOURCE,
        NUMERIC_HOST = FI_NUMERICHOST,
        RMA_EVENT = FI_RMA_EVENT,
        CONTEXT = FI_CONTEXT,
        CONTEXT2 = FI_CONTEXT2,
        ORDER_RMA_RAW = FI_ORDER_RMA_RAW,
        ORDER_RMA_WAW = FI_ORDER_RMA_WAW,
        ORDER_WAW = FI_ORDER_WAW,
        ORDER_SAS = FI_ORDER_SAS,
    }
}
