//! What libibverbs' header promises to programs: structures and numbers, under the names that they have there.
//!
//! Facts only, no behaviour. Every size and offset is checked when this is compiled.
#![allow(non_camel_case_types)]

pub(crate) mod attributes;
pub(crate) mod constants;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod extended;
pub(crate) mod objects;
pub(crate) mod rdmacm;
pub(crate) mod work;

/// A structure of the ABI.
///
/// # Safety
/// All zeroes is a value of it.
pub(crate) unsafe trait Abi: Sized {
    /// All zeroes.
    fn zeroed() -> Self {
        // SAFETY: whoever implements this says that it is a value.
        unsafe { std::mem::zeroed() }
    }
}

/// Defines structures with their size, and the offsets of those fields that have one behind `=`.
macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        $name:ident = $size:literal {
            $( $(#[$about:meta])* $field:ident: $type:ty $(= $offset:literal)? ),+ $(,)?
        }
    )+) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $( $(#[$about])* pub(crate) $field: $type, )+ }

        // SAFETY: numbers, pointers, and functions that may be absent.
        unsafe impl $crate::abi::Abi for $name {}

        const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            $($( assert!(
                std::mem::offset_of!($name, $field) == $offset,
                concat!("offset of ", stringify!($field), " in ", stringify!($name))
            ); )?)+
        };
    )+};
}

pub(crate) use structures;
