//! What the headers of rdma-core define as inline functions, beside what is generated.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::ptr;

pub(crate) use stentor_ibverbs_sys::*;

/// `__VERBS_ABI_IS_EXTENDED`: the context is the last field of a `verbs_context`.
const EXTENDED: usize = usize::MAX;

/// The extended context around a context, as `verbs_get_ctx` finds it; none for a provider that has none.
///
/// # Safety
/// The context is open.
unsafe fn extended(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the caller's promise.
    let mark = unsafe { (*context).abi_compat };
    // SAFETY: with this mark a provider says that it allocated a `verbs_context`, and this is its field.
    (mark.addr() == EXTENDED).then(|| unsafe { context.byte_sub(offset_of!(verbs_context, context)) }.cast())
}

/// `ibv_query_port` of the headers: by the provider's function for the whole structure, if it is there, otherwise by the old
/// symbol for the first part. Returns an errno.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn query_port(
    symbols: &Symbols,
    context: *mut ibv_context,
    port: u8,
    attributes: &mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(extended) = unsafe { extended(context) } {
        // A provider that was built with older headers has a smaller structure: what lies further from the end is not there.
        // SAFETY: `sz` lies right in front of the context, in every version.
        let bytes = unsafe { (*extended).sz };
        if bytes >= size_of::<verbs_context>() - offset_of!(verbs_context, query_port) {
            // SAFETY: the field is within what the provider allocated, as was just seen.
            if let Some(query_port) = unsafe { (*extended).query_port } {
                // SAFETY: the length is that of the structure, which the provider does not overstep.
                return unsafe { query_port(context, port, attributes, size_of::<ibv_port_attr>()) };
            }
        }
    }
    // SAFETY: the old structure is the first part of the new one; the rest stays zero.
    unsafe { symbols.ibv_query_port(context, port, ptr::from_mut(attributes).cast()) }
}
