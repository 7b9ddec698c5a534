//! Our libraries as a C program sees them: what they export, what they refuse, and what they say of bad input.

mod bad_input;
mod cancel;
mod destroy;
mod matrix;
mod newer;
mod source;
mod unmapped;
