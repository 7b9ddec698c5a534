mod capture_builder;
mod gaps;
mod hostile;
mod late;
mod pairs;
mod recovery;
mod rxe;
mod synthetic;
