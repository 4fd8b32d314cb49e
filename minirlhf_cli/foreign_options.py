"""Options that other libraries have: what each is called here, or that it is not here."""

from __future__ import annotations

from collections.abc import Collection

from minirlhf.core.errors import UserError

_SPLIT = "--batch-size is the whole batch, which --micro-batch-size splits"
_ONE_MACHINE = "minirlhf trains on one device; export the run (minirlhf export) to train on more"

#: An option of another library, with underscores -> its counterparts here, the first one that a command has counts, or
#: a sentence on why there is none. A counterpart may be followed by a remark.
COUNTERPARTS: dict[str, tuple[str, ...]] = {
    "lr": ("--learning-rate",),
    "peak_lr": ("--learning-rate",),
    "wd": ("--weight-decay",),
    "scheduler": ("--lr-scheduler-type",),
    "lr_scheduler": ("--lr-scheduler-type",),
    "warmup_ratio": ("--warmup-steps, a number of steps",),
    "num_train_epochs": ("--epochs",),
    "num_epochs": ("--epochs",),
    "max_epochs": ("--epochs",),
    "steps": ("--max-steps",),
    "num_steps": ("--max-steps",),
    "max_iters": ("--max-steps",),
    "total_training_steps": ("--max-steps",),
    "per_device_train_batch_size": (f"--micro-batch-size: {_SPLIT}",),
    "per_device_eval_batch_size": ("--batch-size", "evaluation during training has a fixed batch size"),
    "train_batch_size": ("--batch-size",),
    "micro_train_batch_size": ("--micro-batch-size",),
    "gradient_accumulation_steps": (f"--micro-batch-size: {_SPLIT}",),
    "gradient_checkpointing": ("to save memory, lower --micro-batch-size or train an adapter with --lora-r",),
    "gradient_clipping": ("--max-grad-norm",),
    "max_norm": ("--max-grad-norm",),
    "optim": ("the optimizer is AdamW",),
    "adam_beta1": ("AdamW keeps PyTorch's betas",),
    "adam_beta2": ("AdamW keeps PyTorch's betas",),
    "fp16": ("--bf16 for mixed precision, --dtype for the weights",),
    "torch_dtype": ("--dtype",),
    "precision": ("--dtype",),
    "load_in_4bit": ("quantised weights are not trained here; --lora-r trains an adapter",),
    "load_in_8bit": ("quantised weights are not trained here; --lora-r trains an adapter",),
    "attn_implementation": ("the attention is the library's own, or that of the model",),
    "model_name_or_path": ("--model",),
    "model_name": ("--model",),
    "pretrain": ("--model",),
    "ref_model_name_or_path": ("--ref-model",),
    "reward_model_path": ("--reward-model",),
    "reward_model_name_or_path": ("--reward-model",),
    "teacher_model_name_or_path": ("--teacher",),
    "output_dir": ("--out",),
    "save_path": ("--out",),
    "output_path": ("--json",),
    "dataset": ("--data",),
    "dataset_name": ("--data",),
    "dataset_path": ("--data",),
    "train_file": ("--data",),
    "dataset_train_split": ("--split",),
    "eval_dataset": ("--eval-data",),
    "validation_file": ("--eval-data",),
    "test_size": ("--eval-fraction",),
    "held_out": ("--eval-fraction",),
    "max_samples": ("--limit",),
    "dataset_text_field": ("--messages-field",),
    "max_seq_length": ("--max-length",),
    "max_len": ("--max-length",),
    "cutoff_len": ("--max-length",),
    "block_size": ("--max-length", "--context"),
    "max_prompt_length": ("--max-length", "a prompt is never cut; --drop-long true leaves out long ones"),
    "max_new_tokens": ("--max-completion-length",),
    "max_tokens": ("--max-completion-length",),
    "generate_max_len": ("--max-completion-length",),
    "response_length": ("--max-completion-length",),
    "n_samples_per_prompt": ("--num-generations",),
    "rollout_n": ("--num-generations",),
    "num_return_sequences": ("--num-generations",),
    "group_size": ("--num-generations",),
    "kl_coef": ("--beta",),
    "init_kl_coef": ("--beta",),
    "kl_loss_coef": ("--beta",),
    "cliprange": ("--epsilon",),
    "clip_range": ("--epsilon",),
    "eps_clip": ("--epsilon",),
    "clip_ratio": ("--epsilon",),
    "clip_ratio_high": ("--epsilon-high",),
    "eps_clip_high": ("--epsilon-high",),
    "num_ppo_epochs": ("--num-iterations",),
    "ppo_epochs": ("--num-iterations",),
    "num_mini_batches": ("--num-minibatches",),
    "entropy_coeff": ("--entropy-coef",),
    "simpo_gamma": ("--gamma",),
    "loss_type": ("--loss", "the recipe decides the loss: minirlhf train RECIPE, such as dapo or dr_grpo"),
    "advantage_estimator": ("the recipe decides it: minirlhf train RECIPE, such as rloo or reinforce_pp",),
    "adv_estimator": ("the recipe decides it: minirlhf train RECIPE, such as rloo or reinforce_pp",),
    "scale_rewards": ("the recipe decides it: grpo divides by the group's standard deviation, dr_grpo does not",),
    "reward_funcs": ("--grader, also FILE.py:NAME",),
    "reward_fn": ("--grader, also FILE.py:NAME",),
    "reward_function": ("--grader, also FILE.py:NAME",),
    "reward_weights": ("--grader A*0.9+B*0.1",),
    "tasks": ("--task",),
    "metric_for_best_model": ("--load-best-model-at-end, which takes the run's own measure on the eval set",),
    "early_stopping_patience": ("--load-best-model-at-end keeps the best checkpoint; no run stops early",),
    "save_best": ("--load-best-model-at-end",),
    "eval_strategy": ("--eval-steps",),
    "evaluation_strategy": ("--eval-steps",),
    "eval_every": ("--eval-steps",),
    "save_strategy": ("--save-steps",),
    "save_every": ("--save-steps",),
    "logging_steps": ("every step is logged, in metrics.jsonl",),
    "resume_from_checkpoint": ("--resume",),
    "wandb_project": ("--report-to wandb; WANDB_PROJECT names the project",),
    "use_wandb": ("--report-to wandb",),
    "run_name": ("--out; the run is called as its folder is",),
    "use_peft": ("--lora-r",),
    "lora_rank": ("--lora-r",),
    "lora_target_modules": ("adapters are on all linear layers",),
    "use_vllm": ("completions are sampled by the library itself; an exported script (minirlhf export) can use vLLM",),
    "vllm_mode": ("completions are sampled by the library itself; an exported script (minirlhf export) can use vLLM",),
    "deepspeed": (_ONE_MACHINE,),
    "fsdp": (_ONE_MACHINE,),
    "num_processes": (_ONE_MACHINE,),
    "zero_stage": (_ONE_MACHINE,),
    "trust_remote_code": ("code of a model folder is never run",),
    "neftune_noise_alpha": ("there is no noise on embeddings here",),
    "assistant_only_loss": ("--train-on assistant, the default",),
    "completion_only_loss": ("--train-on last",),
    "apply_chat_template": ("the chat template is always applied; --chat-template FILE replaces it",),
}


def hint(kind: str, name: str, options: Collection[str]) -> UserError | None:
    """Return the error for an option of another library; None if no other library is known to have it.

    Args:
        kind: what is unknown: ``option of 'minirlhf train sft'``.
        name: as the user wrote it, ``--lr`` or ``lr``.
        options: the options that there are, with dashes in front.
    """
    key = name.lstrip("-").replace("-", "_")
    for text in COUNTERPARTS.get(key, ()):
        option = text.split()[0].rstrip(",:;")
        if option.startswith("--") and option not in options:
            continue
        here = f"here it is {text}" if option.startswith("--") else f"it is not here: {text}"
        expected = option if option.startswith("--") else None
        return UserError(
            f"unknown {kind} {name!r}: {here}", argument=kind, value=name, expected=expected, problem="unknown"
        )
    return None
