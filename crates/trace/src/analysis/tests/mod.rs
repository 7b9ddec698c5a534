mod rxe;
mod synthetic;
