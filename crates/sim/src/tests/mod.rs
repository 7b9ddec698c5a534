//! Tests of the simulator with toy protocols.

mod captures;
mod determinism;
mod failures;
mod limits;
mod links;
mod machines;
mod numbers;
mod queues;
mod routing;
mod topology;
mod toys;
