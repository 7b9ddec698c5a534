mod capture_builder;
mod gaps;
mod hostile;
mod pairs;
mod recovery;
mod rxe;
mod synthetic;
