mod gaps;
mod hostile;
mod rxe;
mod synthetic;
mod wire;
