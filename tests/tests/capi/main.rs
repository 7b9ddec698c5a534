//! Our libraries as a C program sees them: exports, refused calls, and responses to bad input.

mod bad_input;
mod cancel;
mod destroy;
mod matrix;
mod newer;
mod public_fields;
mod source;
mod unmapped;
