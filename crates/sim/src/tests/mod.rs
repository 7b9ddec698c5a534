//! Tests of the simulator, on toy protocols of its own.

mod captures;
mod determinism;
mod failures;
mod limits;
mod links;
mod numbers;
mod queues;
mod routing;
mod toys;
