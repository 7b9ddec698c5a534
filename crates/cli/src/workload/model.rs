//! Softmax regression on generated data: a model small enough to train in a test, and real enough to have a loss.

use super::random::Random;

/// Inputs of a sample, the last of which is always 1.
pub(super) const FEATURES: usize = 17;
/// Classes.
pub(super) const CLASSES: usize = 4;
/// Parameters.
pub(super) const WEIGHTS: usize = FEATURES * CLASSES;

/// The step size of gradient descent.
const RATE: f64 = 0.5;

/// A sample: its inputs and its class.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    inputs: [f64; FEATURES],
    class: usize,
}

/// Generates all samples. A hidden model chooses the classes, so that there is something to learn.
pub(super) fn samples(seed: u64, count: usize) -> Vec<Sample> {
    let mut random = Random::new(seed);
    let hidden: Vec<f64> = (0..WEIGHTS).map(|_| random.signed_unit() * 3.0).collect();
    let sample = |_| {
        let mut inputs = [1.0; FEATURES];
        inputs[..FEATURES - 1].fill_with(|| random.signed_unit());
        let scores = scores(&hidden, &inputs);
        let best = (0..CLASSES).max_by(|one, other| scores[*one].total_cmp(&scores[*other]));
        Sample { inputs, class: best.unwrap_or(0) }
    };
    (0..count).map(sample).collect()
}

fn scores(weights: &[f64], inputs: &[f64; FEATURES]) -> [f64; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (score, weights) in scores.iter_mut().zip(weights.chunks_exact(FEATURES)) {
        *score = weights.iter().zip(inputs).map(|(weight, input)| weight * input).sum();
    }
    scores
}

/// The gradient of the summed cross-entropy loss of some samples, and that loss.
pub(super) fn gradient(weights: &[f64], samples: &[Sample]) -> (Vec<f64>, f64) {
    let (mut gradient, mut loss) = (vec![0.0; WEIGHTS], 0.0);
    for sample in samples {
        let scores = scores(weights, &sample.inputs);
        let highest = scores.iter().copied().fold(f64::MIN, f64::max);
        let powers = scores.map(|score| (score - highest).exp());
        let sum: f64 = powers.iter().sum();
        loss -= (powers[sample.class] / sum).ln();
        for (class, part) in gradient.chunks_exact_mut(FEATURES).enumerate() {
            let error = powers[class] / sum - f64::from(u8::from(class == sample.class));
            for (slope, input) in part.iter_mut().zip(&sample.inputs) {
                *slope += error * input;
            }
        }
    }
    (gradient, loss)
}

/// One step of gradient descent with the gradients of all workers, added in the order of their ranks: floating-point
/// addition is not associative, so another order gives another result.
pub(super) fn step(weights: &mut [f64], gradients: &[Vec<f64>], samples: usize) {
    for (index, weight) in weights.iter_mut().enumerate() {
        let sum: f64 = gradients.iter().map(|gradient| gradient[index]).sum();
        *weight -= RATE * sum / samples as f64;
    }
}

/// The samples of a worker, out of all.
pub(super) fn shard(samples: &[Sample], worker: usize, workers: usize) -> &[Sample] {
    let of = |worker: usize| samples.len() * worker / workers;
    &samples[of(worker)..of(worker + 1)]
}

/// Trains in one process, and returns the weights and the mean loss before each step.
pub(super) fn train(samples: &[Sample], workers: usize, steps: u64) -> (Vec<f64>, Vec<f64>) {
    let (mut weights, mut losses) = (vec![0.0; WEIGHTS], Vec::new());
    for _ in 0..steps {
        let parts: Vec<_> = (0..workers)
            .map(|worker| gradient(&weights, shard(samples, worker, workers)))
            .collect();
        losses.push(parts.iter().map(|(_, loss)| loss).sum::<f64>() / samples.len() as f64);
        let gradients: Vec<_> = parts.into_iter().map(|(gradient, _)| gradient).collect();
        step(&mut weights, &gradients, samples.len());
    }
    (weights, losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_lowers_the_loss_for_any_number_of_workers() {
        let samples = samples(7, 200);
        let (one, losses) = train(&samples, 1, 30);
        assert!((losses[0] - f64::from(CLASSES as u8).ln()).abs() < 1e-12, "{}", losses[0]);
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
        let (three, _) = train(&samples, 3, 30);
        let differ = one.iter().zip(&three).map(|(one, three)| (one - three).abs());
        assert!(differ.fold(0.0, f64::max) < 1e-12);
        let count: usize = (0..3).map(|worker| shard(&samples, worker, 3).len()).sum();
        assert_eq!(count, samples.len());
    }
}
