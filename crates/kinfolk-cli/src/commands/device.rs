//! What clients of this computer compute on.

use super::*;
use kinfolk::compute::Backend;
use kinfolk::experiment::Experiment;

/// What clients of this computer compute on.
#[derive(clap::Args)]
pub struct OnDevice {
    /// What clients compute on; auto takes a CUDA device where there is one [default: as the file says, or $KINFOLK_DEVICE, or cpu]
    #[arg(long, value_name = "DEVICE", value_parser = ["cpu", "cuda", "auto"])]
    device: Option<String>,
    /// What a device keeps of the factors of convolutions: f32, or tf32, which is faster [default: as the file says, or f32]
    #[arg(long, value_name = "PRECISION", value_parser = ["f32", "tf32"])]
    device_precision: Option<String>,
}

impl OnDevice {
    /// The backend that is asked for, here, in the experiment, or in the environment.
    pub fn backend(&self, experiment: Option<&Experiment>) -> Result<Arc<dyn Backend>> {
        kinfolk_cuda::chosen(self.device.as_deref(), self.device_precision.as_deref(), experiment, say)
    }
}
