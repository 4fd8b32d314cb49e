"""Layer 4: where rewards come from that no model computes: graders, judges, tools."""
