//! The structures and constants of libibverbs' and librdmacm's headers, under their C names.
//!
//! No behaviour. Sizes and offsets are checked at compile time.
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
/// All zeroes is a valid value.
pub(crate) unsafe trait Abi: Sized {
    /// All zeroes.
    fn zeroed() -> Self {
        // SAFETY: implementing the trait promises that it is a valid value.
        unsafe { std::mem::zeroed() }
    }
}

/// Defines structures with their size, and the offsets of fields that have one after `=`.
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

        // SAFETY: numbers, pointers and optional functions.
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
