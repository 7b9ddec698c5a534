mod capture_builder;
mod gaps;
mod hostile;
mod rxe;
mod synthetic;
