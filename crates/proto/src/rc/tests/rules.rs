//! One rule at a time.
