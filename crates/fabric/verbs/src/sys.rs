//! Functions that rdma-core's headers define inline, in addition to the generated bindings.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::ptr;

pub(crate) use stentor_ibverbs_sys::*;

/// `__VERBS_ABI_IS_EXTENDED`: marks a context that is the last field of a `verbs_context`.
const EXTENDED: usize = usize::MAX;

/// Returns the extended context that contains a context, like the headers' `verbs_get_ctx`, or `None` if the provider
/// has no extended context.
///
/// # Safety
/// The context must be open.
unsafe fn extended(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: guaranteed by the caller.
    let mark = unsafe { (*context).abi_compat };
    // SAFETY: the mark means that the provider has allocated a `verbs_context`, of which this context is a field.
    (mark.addr() == EXTENDED).then(|| unsafe { context.byte_sub(offset_of!(verbs_context, context)) }.cast())
}

/// Does what the headers' inline function `ibv_query_port` does, and returns an errno. If the provider has a function
/// that fills the whole structure, calls it. Otherwise calls the old symbol, which fills only the first part.
///
/// # Safety
/// The context must be open.
pub(crate) unsafe fn query_port(
    symbols: &Symbols,
    context: *mut ibv_context,
    port: u8,
    attributes: &mut ibv_port_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    if let Some(extended) = unsafe { extended(context) } {
        // The structure grows at its front. A provider that was built with older headers has a smaller structure,
        // which lacks the fields at the front.
        // SAFETY: `sz` lies directly in front of the context in every version.
        let bytes = unsafe { (*extended).sz };
        if bytes >= size_of::<verbs_context>() - offset_of!(verbs_context, query_port) {
            // SAFETY: the check above shows that the field is inside the provider's allocation.
            if let Some(query_port) = unsafe { (*extended).query_port } {
                // SAFETY: the length is that of the structure, and the provider does not exceed it.
                return unsafe { query_port(context, port, attributes, size_of::<ibv_port_attr>()) };
            }
        }
    }
    // SAFETY: the old structure is the first part of the new one, and the rest stays zero.
    unsafe { symbols.ibv_query_port(context, port, ptr::from_mut(attributes).cast()) }
}
